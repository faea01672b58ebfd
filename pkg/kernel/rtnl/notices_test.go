// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
)

// TestWatchLost: when the kernel drops events because they were not read, Begin is told so, until it can read the links, and events go on.
func TestWatchLost(t *testing.T) {
	netns.Host(t, func() {
		here, err := ns.GetCurrentNS()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = here.Close() }()
		conn, err := Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		begun, noted, ended, reads := make(chan bool, 10), make(chan netip.Prefix, 1000), make(chan error), make(chan struct{})
		refused := false
		w := Watch{Namespace: here, Groups: []uint{unix.RTNLGRP_IPV4_ROUTE}, End: func(err error) { ended <- err },
			Begin: func(lost bool) error {
				if lost && !refused {
					refused = true
					return errors.New("the links can't be read")
				}
				begun <- lost
				return nil
			},
			Note: func(messages []syscall.NetlinkMessage) {
				<-reads
				for _, m := range messages {
					if r, ok := ParseRoute(m.Data); ok {
						select {
						case noted <- r.Dst:
						default:
						}
					}
				}
			},
		}
		ctx, cancel := context.WithCancel(context.Background())
		if err := w.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if <-begun {
			t.Error("something was lost before the start")
		}
		flap := func(dst netip.Prefix) {
			route := Route{Dst: dst, Index: 1, Scope: unix.RT_SCOPE_LINK}.Netlink()
			if err := errors.Join(conn.RouteAdd(route), conn.RouteDel(route)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 * noticeBuffer / 1000 { // a notice takes most of 1,000 bytes
			flap(netip.MustParsePrefix("10.9.0.1/32"))
		}
		close(reads)
		if !eventually.Receive(t, "a loss to be noticed", begun) {
			t.Error("begun again, and nothing was lost")
		}
		want := netip.MustParsePrefix("10.9.0.2/32")
		flap(want)
		eventually.Find(t, "a notice after the loss", noted, func(got netip.Prefix) bool { return got == want })
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
