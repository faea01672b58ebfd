// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

func TestLinkRoles(t *testing.T) {
	netns.Host(t, func() {
		for _, l := range []string{"eth0", "eth1", "eth2", "eth3"} {
			netns.IP(t, "link", "add", l, "type", "veth", "peer", "name", "far"+l[3:])
			netns.IP(t, "link", "set", l, "up")
			netns.IP(t, "link", "set", "far"+l[3:], "up")
		}
		netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "eth0")
		netns.IP(t, "addr", "add", "fd00::9/64", "dev", "eth0", "nodad")
		netns.IP(t, "addr", "add", "169.254.1.1/32", "dev", "eth1", "scope", "link")
		netns.IP(t, "route", "add", "10.9.0.0/16", "dev", "eth1")
		netns.IP(t, "route", "add", "default", "dev", "eth2", "metric", "9999")
		pods.AwaitSettled(t, "eth3")
		netns.IP(t, "-6", "route", "add", "fd09::/64", "via", "fe80::1", "dev", "eth3")
		netns.IP(t, "link", "add", "vxlan.calico", "type", "vxlan", "id", "7", "dstport", "4790")
		got, err := Roles([]string{"eth", "l", "vx"})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range got {
			if i, err := net.InterfaceByName(l.Name); err != nil || l.Index != i.Index {
				t.Errorf("%s has index %d: %+v, %v", l.Name, l.Index, i, err)
			}
		}
		want := []Role{
			{Name: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::9")}},
			{Name: "eth1"}, {Name: "eth2", Uplink: true}, {Name: "eth3", Uplink: true}, {Name: "lo", Loopback: true}, {Name: "vxlan.calico", Tunnel: true},
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Role{}, "Index")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if want := []string{"tunl0", "vxlan-v6.calico", "vxlan.calico"}; !slices.Equal(link.TunnelNames(), want) {
			t.Errorf("%v, want %v", link.TunnelNames(), want)
		}
	})
}

// TestSubscribeRoles: what shows that a link with a workload's name is the host's own is signalled.
func TestSubscribeRoles(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		pods.Wire(t, 1)
		for _, args := range [][]string{
			{"addr", "add", "192.0.2.1/24", "dev", "cali1"},
			{"addr", "add", "fd00::9/64", "dev", "cali1"},
			{"-6", "route", "add", "default", "dev", "cali1"},
			{"-6", "route", "add", "fd09::/64", "via", "fe80::1", "dev", "cali1"},
		} {
			ctx, cancel := context.WithCancel(context.Background())
			events, err := h.Subscribe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			netns.IP(t, args...)
			eventually.Find(t, fmt.Sprintf("an event of ip %v", args), events, func(e hostpath.Event) bool { return e.Host })
			cancel()
			for range events { // until it has ended
			}
		}
	})
}
