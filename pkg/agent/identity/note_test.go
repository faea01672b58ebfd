// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/plan"
)

// foreign are links with so many routes of another program.
func foreign(routes int) plan.Links {
	l := plan.Links{Links: []plan.Link{{Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("172.18.0.1/16")}}}}
	for i := range routes {
		to := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		l.Routes = append(l.Routes, plan.HostRoute{Destination: to, Gateway: netip.MustParseAddr("172.18.0.2"), Device: "eth0"})
	}
	return l
}

// TestLookKeepsTheLast has the note hold the very links that it was given last, so that
// they are not compared route by route when they are given again with each change of etcd.
func TestLookKeepsTheLast(t *testing.T) {
	var n note
	for i, given := range []struct {
		links plan.Links
		other bool
	}{{foreign(3), true}, {foreign(3), false}, {foreign(4), true}} {
		if other := n.look(given.links); other != given.other {
			t.Errorf("%d: others than before: %v", i, other)
		}
		if &n.links.Routes[0] != &given.links.Routes[0] {
			t.Errorf("%d: a copy is kept", i)
		}
	}
	if n.sight != 2 {
		t.Errorf("links changed %d times, want 2", n.sight)
	}
}

func BenchmarkLookAgain(b *testing.B) {
	for _, routes := range []int{0, 5000, 20000} {
		b.Run(fmt.Sprint(routes), func(b *testing.B) {
			var n note
			l := foreign(routes)
			for b.Loop() {
				n.look(l)
			}
		})
	}
}
