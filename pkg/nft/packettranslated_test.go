// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestTranslatedConnections stops the masquerading of the last pool. Connections that use the host's address go on, even if the program
// restarts meanwhile; new ones use the workload's.
func TestTranslatedConnections(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		a, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "eth0")
		own := ownAddrs(t)
		all := []policy.Rule{{Action: model.ActionAllow}}
		a.ep.Inbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("open")}}
		a.ep.Outbound = a.ep.Inbound
		state := func(masquerade ...string) policy.Changes {
			return policy.Changes{
				Endpoints: endpoints(a.ep), Rules: rules(policy.Rules{ID: profileID("open"), Inbound: all, Outbound: all}),
				Pools: &policy.Pools{All: cidrs("10.65.0.1/32", "fd00::1/128"), Masquerade: cidrs(masquerade...)},
			}
		}
		f := open(t)
		f.Update(state())
		mustApply(t, f)
		if table := listed(t); strings.Contains(table, "type nat") {
			t.Fatalf("nothing is translated, and yet the kernel is to:\n%s", table)
		}
		f.Update(state("10.65.0.1/32", "fd00::1/128"))
		mustApply(t, f)
		marker, at := out.listen(markerPort), map[int]net.PacketConn{80: out.listen(80), 81: out.listen(81)}
		want := func(what string, port int, addrs []netip.Addr) {
			t.Helper()
			for v, addr := range addrs {
				from := a.ep.Addrs[v]
				got, ok := probe(t, a.do, netip.AddrPortFrom(from, 1000), netip.AddrPortFrom(out.ep.Addrs[v], uint16(port)), at[port], marker, from, out.ep.Addrs[v], true)
				if !ok || got.Addr() != addr {
					t.Errorf("%s, IPv%d: received %t, from %s: want %s", what, []int{4, 6}[v], ok, got, addr)
				}
			}
		}
		want("masqueraded", 80, own)
		f.Update(state())
		mustApply(t, f)
		want("it goes on", 80, own)
		want("a new one, from now on", 81, a.ep.Addrs)
		_ = f.Close()
		f = open(t)
		f.Update(state())
		mustApply(t, f)
		want("after a restart", 80, own)
	})
}
