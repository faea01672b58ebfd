// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/model"
)

// TestTranslatedAnew: connections that began before their addresses were translated
// are forgotten, so that they begin anew, and those that go on are left alone.
func TestTranslatedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		pool := netip.MustParsePrefix("10.0.0.0/24")
		outer := func(c conntrack.Tracked, inner string, port uint16) conntrack.Tracked {
			c.SrcPort, c.ReplyDstPort, c.ReplySrc = port, port, netip.MustParseAddr(inner)
			return c
		}
		replied := func(c conntrack.Tracked) conntrack.Tracked { c.Replied = true; return c }
		masqueraded := func(c conntrack.Tracked) conntrack.Tracked {
			c.ReplyDst = netip.MustParseAddr("198.51.100.9")
			return c
		}
		settled := func(name string, left ...uint16) {
			t.Helper()
			synctest.Wait()
			time.Sleep(2 * maxSweepRest)
			if diff := cmp.Diff(left, x.left()); diff != "" {
				t.Errorf("%s: connections (-want +got):\n%s", name, diff)
			}
		}
		spec := func(name, addr string, nats ...model.NAT) model.WorkloadEndpoint {
			s := testSpec(name, addr)
			s.ProfileIDs, s.IPv4NAT = []string{"open"}, nats
			return s
		}
		time.Sleep(time.Hour) // nothing of the start is judged any more
		toOuter := tcp("10.0.0.2", 0, "192.0.2.1", 80)
		x.set(outer(toOuter, "192.0.2.1", 1001), replied(outer(toOuter, "192.0.2.1", 1002)), outer(toOuter, "10.0.0.1", 1003),
			replied(outer(toOuter, "10.0.0.9", 1004)), tcp("10.0.0.2", 1005, "192.0.2.2", 80))
		x.write(put(testKey("a"), spec("cali1", "10.0.0.1", nat("10.0.0.1", "192.0.2.1")), 1))
		settled("an outer address is new", 1003, 1005)
		x.set(outer(toOuter, "192.0.2.1", 1001))
		x.write(put(testKey("b"), spec("cali2", "10.0.0.2"), 1))
		settled("nothing of it changed", 1001)

		x.write(put(testKey("a"), spec("cali1", "10.0.0.1"), 1))
		settled("it leads nowhere")
		x.set(outer(toOuter, "192.0.2.1", 1001), outer(toOuter, "10.0.0.1", 1002), outer(toOuter, "10.0.0.2", 1003))
		x.write(put(testKey("b"), spec("cali2", "10.0.0.2", nat("10.0.0.2", "192.0.2.1")), 1))
		settled("it is another's", 1003)

		out := tcp("10.0.0.1", 1001, "203.0.113.1", 80)
		x.set(out, replied(tcp("10.0.0.1", 1002, "203.0.113.1", 80)), masqueraded(tcp("10.0.0.1", 1003, "203.0.113.1", 80)),
			tcp("10.0.0.1", 1004, "10.0.0.2", 80), tcp("203.0.113.1", 1005, "10.0.0.1", 80))
		x.write(put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool}, 1))
		settled("a pool that doesn't masquerade", 1001, 1002, 1003, 1004, 1005)
		x.write(put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, Masquerade: true}, 1))
		settled("it masquerades", 1002, 1003, 1004, 1005)
		x.set(out)
		x.policy("no-81", to(81))
		settled("policy alone changed", 1001)
	})
}
