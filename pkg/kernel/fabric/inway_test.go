// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
)

// TestClearWay: the routes of a Fabric that cover an address are removed as long as one of them decides its way; they come back as they
// were.
func TestClearWay(t *testing.T) {
	netns.Host(t, func() {
		netns.IP(t, "link", "add", "up1", "type", "veth", "peer", "name", "peer1")
		netns.IP(t, "link", "set", "up1", "up")
		netns.IP(t, "link", "set", "peer1", "up")
		pods.AwaitSettled(t, "up1")
		pods.AwaitSettled(t, "peer1")
		netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "up1")
		netns.IP(t, "-6", "addr", "add", "2001:db8::1/64", "dev", "up1", "nodad")
		for _, route := range []string{
			"198.51.100.0/24 via 192.0.2.9 metric 50", "198.51.100.8/29 via 192.0.2.8 proto 81 metric 1100",
			"blackhole 198.51.100.8/30 proto 81 metric 1100", "198.51.100.64/26 via 192.0.2.7 proto 81 metric 1100",
			"203.0.113.0/25 nexthop via 192.0.2.5 nexthop via 192.0.2.6 proto 81 metric 1100", "203.0.113.0/26 via 192.0.2.4 proto 80",
			"203.0.113.128/25 via 192.0.2.5 proto 81 metric 1100", "203.0.113.128/25 via 192.0.2.9",
		} {
			words := strings.Fields(route)
			if i := strings.Index(route, " nexthop"); i > 0 { // the hops come last
				words = strings.Fields("203.0.113.0/25 proto 81 metric 1100 nexthop via 192.0.2.5 nexthop via 192.0.2.6")
			}
			netns.IP(t, append([]string{"route", "add"}, words...)...)
		}
		netns.IP(t, "-6", "route", "add", "blackhole", "2001:db8:1::/64", "proto", "81", "metric", "1100")
		netns.IP(t, "-6", "route", "add", "2001:db8::/16", "via", "2001:db8::9")
		before := append(netns.IP(t, "route"), netns.IP(t, "-6", "route")...)
		for _, a := range []struct {
			addr, gone string
			led        bool // before
		}{
			{"198.51.100.9", "[198.51.100.8/30 198.51.100.8/29]", false},
			{"198.51.100.13", "[198.51.100.8/29]", true},
			{"198.51.100.1", "[]", false},
			{"203.0.113.1", "[]", true}, // a workload of this host
			{"203.0.113.70", "[203.0.113.0/25]", true},
			{"203.0.113.200", "[]", false}, // another's comes first
			{"192.0.2.1", "[]", false},     // the host's own
			{"2001:db8:1::7", "[2001:db8:1::/64]", false},
		} {
			addr := netip.MustParseAddr(a.addr)
			if led, err := LedByRoute(addr); err != nil || led != a.led {
				t.Errorf("%s is led by a route of ours: %v, %v", addr, led, err)
			}
			gone, restore, err := ClearWay(addr)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(gone); got != a.gone {
				t.Errorf("routes that lead away from %s: %s, want %s", addr, got, a.gone)
			}
			if again, _, err := ClearWay(addr); err != nil || len(again) > 0 {
				t.Errorf("routes that lead away from %s, when there are none: %v, %v", addr, again, err)
			}
			for range 2 {
				if err := restore(); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(before, append(netns.IP(t, "route"), netns.IP(t, "-6", "route")...)); diff != "" {
				t.Errorf("as it was (-want +got):\n%s", diff)
			}
		}
	})
}
