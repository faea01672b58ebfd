// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/long"
	"github.com/calico-go/calico/test/netns"
)

// members returns n addresses of each IP version.
func members(from, n int) []policy.Member {
	var out []policy.Member
	for i := from; i < from+n; i++ {
		out = append(out, policy.Member{Addr: netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)})},
			policy.Member{Addr: netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})})
	}
	return out
}

// TestLargeSet expects every one of 100,000 elements.
func TestLargeSet(t *testing.T) {
	long.Test(t)
	const n = 100_000
	netns.Host(t, func() {
		f := open(t)
		c := sample()
		c.Sets["clients"] = &policy.SetChange{Kind: policy.KindAddrs, New: true, Added: members(0, n)}
		f.Update(c)
		mustApply(t, f)
		elements := func(want int) {
			t.Helper()
			for _, set := range []string{"s4-clients", "s6-clients"} {
				got := make(map[string]bool)
				if err := f.conn.ReadElements(&f.desired.ruleset.sets[set].def, func(e nfnl.Element) { got[e.Key] = true }); err != nil {
					t.Fatal(err)
				}
				for key := range f.desired.ruleset.sets[set].elems {
					if !got[key] {
						t.Fatalf("set %s lacks %x", set, key)
					}
				}
				if len(got) != want {
					t.Errorf("set %s has %d elements, want %d", set, len(got), want)
				}
			}
		}
		elements(n)
		f.Update(policy.Changes{Sets: map[policy.SetID]*policy.SetChange{"clients": {Added: members(n, 3), Removed: members(0, 1)}}})
		wantWrites(t, f, 8, 0)
		elements(n + 2)
		f.Update(policy.Changes{Sets: map[policy.SetID]*policy.SetChange{"clients": {Added: members(n+3, n/4), Removed: members(1, n/4)}}})
		mustApply(t, f)
		elements(n + 2)
		f.Audit()
		wantWrites(t, f, 0, 0)
	})
}

// TestManyRules puts 10,000 rules into one policy, changes one, and expects the
// counters of the others to stay.
func TestManyRules(t *testing.T) {
	const n = 10_000
	many := policy.Rules{ID: policyID("many")}
	for i := range n {
		many.Inbound = append(many.Inbound, policy.Rule{Action: model.ActionAllow, Match: policy.Criteria{
			SrcNets:  cidrs(fmt.Sprintf("100.%d.%d.0/24", i>>8, i&255)),
			Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: 80, Max: 80}, {Min: 8080, Max: 8080}},
		}})
	}
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(workload(1, "many")), Rules: rules(many, policy.Rules{ID: profileID("prod")})})
		mustApply(t, f)
		before := f.desired.ruleset.chains["in-policy-many"].have
		changed := many
		changed.Inbound = append([]policy.Rule(nil), many.Inbound...)
		changed.Inbound[n/2].Action = model.ActionDeny
		f.Update(policy.Changes{Rules: rules(changed)})
		wantWrites(t, f, 4, 0)
		after := f.desired.ruleset.chains["in-policy-many"].have
		if len(after) != 2*n { // one for each port
			t.Fatalf("%d rules, want %d", len(after), 2*n)
		}
		for i := range after {
			if (after[i] == before[i]) == (i/2 == n/2) {
				t.Errorf("rule %d: the same %t", i, after[i] == before[i])
			}
		}
		f.Audit()
		wantWrites(t, f, 0, 0)
	})
}

// TestPortions writes many new sets in several transactions: the caller hears from it in between, and nothing leads to the rules that use
// them before the last. A table that is recreated is one transaction: until its end there would be none.
func TestPortions(t *testing.T) {
	const n = 2500
	c := policy.Changes{Sets: make(map[policy.SetID]*policy.SetChange), Endpoints: endpoints(workload(1, "many"))}
	many := policy.Rules{ID: policyID("many")}
	for i := range n {
		id := policy.SetID(fmt.Sprint(i))
		c.Sets[id] = &policy.SetChange{Kind: policy.KindAddrs, New: true}
		many.Inbound = append(many.Inbound, policy.Rule{Action: model.ActionAllow, Match: policy.Criteria{SrcSets: []policy.SetID{id}}})
	}
	c.Rules = rules(many)
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(workload(1), workload(2)), Rules: rules(policy.Rules{ID: profileID("prod")})})
		mustApply(t, f)
		leads := func() string { return run(t, "nft", "list", "map", "inet", TableName, render.MapTo) }
		before, cuts := leads(), 0
		f.cfg.Between = func() {
			cuts++
			if got := leads(); got != before {
				t.Errorf("before the last transaction:\n%s\nhad been:\n%s", got, before)
			}
		}
		f.Update(c)
		f.desired.ruleset.turn = 1 << 20 // all in one
		mustApply(t, f)
		if cuts == 0 || leads() == before {
			t.Errorf("%d cuts; in the end:\n%s", cuts, leads())
		}
		f.Audit()
		wantWrites(t, f, 0, 0)
		f.cfg.Between = func() { t.Error("the table is made anew in several transactions") }
		f.remake, f.generation = true, 0
		f.Audit()
		mustApply(t, f)
	})
}
