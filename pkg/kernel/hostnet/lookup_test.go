// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// TestLookup covers two uplinks: addresses beyond either, beyond both by two next hops, and by a table that the source address chooses.
func TestLookup(t *testing.T) {
	netns.Host(t, func() {
		for i, name := range []string{"eth0", "eth1"} {
			far := []string{"far0", "far1"}[i]
			netns.IP(t, "link", "add", name, "type", "veth", "peer", "name", far)
			netns.IP(t, "link", "set", name, "up")
			netns.IP(t, "link", "set", far, "up")
			pods.AwaitSettled(t, name)
		}
		for _, args := range []string{
			"addr add 192.0.2.1/24 dev eth0", "addr add 198.51.100.1/24 dev eth1", "addr add fd00::9/64 dev eth0 nodad", "addr add fd01::9/64 dev eth1 nodad",
			"route add 203.0.113.0/25 nexthop via 192.0.2.7 dev eth0 nexthop via 198.51.100.7 dev eth1",
			"-6 route add fd02::/64 nexthop via fd00::7 dev eth0 nexthop via fd01::7 dev eth1",
			"nexthop add id 1 via 192.0.2.7 dev eth0", "nexthop add id 2 via 198.51.100.7 dev eth1", "nexthop add id 3 group 1/2",
			"route add 203.0.113.128/25 nhid 3",
			"route add default via 192.0.2.7 dev eth0", "route add default via 198.51.100.7 dev eth1 table 101", "rule add from 198.51.100.1 lookup 101",
			"-6 route add default via fd00::7 dev eth0", "-6 route add default via fd01::7 dev eth1 table 101", "-6 rule add from fd01::9 lookup 101",
		} {
			netns.IP(t, strings.Fields(args)...)
		}
		w := &Lookup{}
		defer w.Close()
		for _, test := range []struct {
			to, from string
			want     []string
		}{
			{"192.0.2.1", "", []string{""}},
			{"fd00::9", "", []string{""}},
			{"192.0.2.7", "", []string{"eth0"}},
			{"fd00::7", "", []string{"eth0"}},
			{"203.0.113.1", "", []string{"eth0", "eth1"}},
			{"203.0.113.129", "", []string{"eth0", "eth1"}},
			{"fd02::1", "", []string{"eth0", "eth1"}},
			{"8.8.8.8", "192.0.2.1", []string{"eth0"}},
			{"8.8.8.8", "198.51.100.1", []string{"eth1"}},
			{"2001:db8::1", "fd00::9", []string{"eth0"}},
			{"2001:db8::1", "fd01::9", []string{"eth1"}},
		} {
			var from netip.Addr
			if test.from != "" {
				from = netip.MustParseAddr(test.from)
			}
			// An IPv6 address is its host's a moment after it was added.
			eventually.Nil(t, fmt.Sprintf("to %s from %q: %q", test.to, test.from, test.want), func() error {
				got, err := w.To(netip.MustParseAddr(test.to), from)
				if err == nil && !slices.Equal(got, test.want) {
					err = fmt.Errorf("it is %q", got)
				}
				return err
			})
		}
		netns.IP(t, "route", "del", "default")
		if got, err := w.To(netip.MustParseAddr("8.8.8.8"), netip.Addr{}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("nowhere: %q, %v", got, err)
		}
		// If next hops are objects of their own, the kernel names only one.
		if err := os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
		if got, err := w.To(netip.MustParseAddr("203.0.113.129"), netip.Addr{}); err != nil || len(got) != 1 {
			t.Errorf("next hops apart: %q, %v", got, err)
		}
	})
}
