// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/test/netns"
)

// TestLeadsTo: a route to an address through one of two links doesn't count for the other, and a route to more than the address counts for
// neither.
func TestLeadsTo(t *testing.T) {
	netns.Host(t, func() {
		for _, name := range []string{"cali1", "cali2"} {
			netns.IP(t, "link", "add", name, "type", "veth", "peer", "name", name+"p")
			netns.IP(t, "link", "set", name+"p", "up")
			netns.IP(t, "link", "set", name, "up")
		}
		netns.IP(t, "route", "add", "10.0.0.1", "dev", "cali1", "scope", "link", "proto", "boot")
		netns.IP(t, "-6", "route", "add", "fd00::1", "dev", "cali1", "proto", "80")
		netns.IP(t, "route", "add", "10.0.0.0/24", "dev", "cali2")
		netns.IP(t, "route", "add", "default", "dev", "cali2")
		v4, v6, none := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.2")
		for _, c := range []struct {
			name  string
			addrs []netip.Addr
			want  bool
		}{
			{"cali1", []netip.Addr{v4}, true},
			{"cali1", []netip.Addr{none, v6}, true},
			{"cali1", []netip.Addr{none}, false},
			{"cali1", nil, false},
			{"cali2", []netip.Addr{v4, v6, none}, false},
		} {
			l, err := link.Find(c.name)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.LeadsTo(c.addrs); got != c.want {
				t.Errorf("%s leads to one of %v: %v", c.name, c.addrs, got)
			}
		}
	})
}
