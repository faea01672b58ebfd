// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/beside"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestForwardDrop: with `iptables -P FORWARD DROP` before and after our table is created, and our accepts in its chains, what policy allows
// passes, and what it denies is dropped by our own chain, although the other one accepts it.
func TestForwardDrop(t *testing.T) {
	chains := func(t *testing.T) {
		for _, family := range []string{"ip", "ip6"} {
			run(t, "nft", fmt.Sprintf("add table %[1]s filter; add chain %[1]s filter FORWARD { type filter hook forward priority filter; policy drop; }", family))
		}
	}
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("theirs first: %t", first), func(t *testing.T) {
			netns.Host(t, func() {
				asHost(t)
				a, b := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2")
				all := policy.Rule{Action: model.ActionAllow}
				for _, s := range []space{a, b} {
					s.ep.Inbound = policy.Verdicts{Policies: []policy.RulesID{policyID("web")}}
					s.ep.Outbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
				}
				if first {
					chains(t)
				}
				f := open(t)
				f.Update(policy.Changes{Endpoints: endpoints(a.ep, b.ep), Rules: rules(
					policy.Rules{ID: policyID("web"), Inbound: withMarker(udpTo(model.ActionDeny, 81), udpTo(model.ActionAllow, 80))},
					policy.Rules{ID: profileID("prod"), Outbound: []policy.Rule{all}},
				)})
				mustApply(t, f)
				if !first {
					chains(t)
				}
				marker, allowed, denied := b.listen(markerPort), b.listen(80), b.listen(81)
				for _, to := range b.ep.Addrs { // nothing passes
					send(t, a, netip.AddrPortFrom(a.ep.Addrs[len(to.AsSlice())/16], 0), netip.AddrPortFrom(to, 80))
				}
				forward, err := beside.Open()
				if err != nil {
					t.Error(err)
					return
				}
				defer forward.Close()
				changes, err := forward.Apply(beside.Desired{Prefixes: []string{"cali"}, Mode: beside.Insert})
				if err != nil || len(changes) != 2 {
					t.Errorf("changed %v, %v: want both families", changes, err)
				}
				for v, to := range b.ep.Addrs {
					from := a.ep.Addrs[v]
					if s, ok := probe(t, a.do, netip.AddrPortFrom(from, 1000), netip.AddrPortFrom(to, 80), allowed, marker, from, to, true); !ok || s.Port() != 1000 {
						t.Errorf("%s: allowed by policy: received %t, from %s; what was sent before the accepts must not come", to, ok, s)
					}
					if _, ok := probe(t, a.do, netip.AddrPortFrom(from, 1000), netip.AddrPortFrom(to, 81), denied, marker, from, to, false); ok {
						t.Errorf("%s: denied by policy and accepted in FORWARD: it passed", to)
					}
				}
				waitCount(t, "in-policy-web", "policy web rule 1", 2)
			})
		})
	}
}
