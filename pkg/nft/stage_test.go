// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// manyRanges returns policy web with one rule of six networks, beginning at 10.n.0.0.
func manyRanges(n int) policy.Changes {
	var nets []netip.Prefix
	for i := range 6 {
		nets = append(nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), byte(2 * i), 0}), 24))
	}
	deny := policy.Rule{Action: model.ActionDeny, Match: policy.Criteria{SrcNets: nets}}
	return policy.Changes{Endpoints: endpoints(workload(1, "web")), Rules: rules(policy.Rules{ID: policyID("web"), Inbound: []policy.Rule{deny}})}
}

// TestStageNotReadBack stages rules and then forgets that.
func TestStageNotReadBack(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(manyRanges(1))
		mustApply(t, f)
		f.Update(manyRanges(2))
		b := f.conn.NewBatch()
		p, err := f.desired.ruleset.plan(b)
		if err != nil || !p.staged {
			t.Fatalf("staged %t: %v", p.staged, err)
		}
		if _, err := b.Commit(0); err != nil {
			t.Fatal(err)
		}
		f.generation, f.whole = 0, true
		mustApply(t, f)
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
		f.Audit()
		wantWrites(t, f, 0, 0)
	})
}

// TestStageRefused makes the kernel refuse what follows staged rules, repeatedly: the staged rules don't accumulate.
func TestStageRefused(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(manyRanges(0))
		mustApply(t, f)
		before := listed(t)
		f.desired.ruleset.putChain("wrong", func() table.Chain {
			return table.Chain{Name: "wrong", Rules: []table.Rule{{Do: []table.Statement{table.Verdict{Kind: table.Goto, Chain: "nowhere"}}}}}
		})
		var counts []int
		for n := range 4 {
			f.Update(manyRanges(n + 1))
			if _, err := f.Apply(t.Context()); err == nil {
				t.Fatal("a rule that leads nowhere was taken")
			}
			counts = append(counts, strings.Count(run(t, "nft", "list", "chain", "inet", TableName, render.RulesChain(policyID("web"), model.Inbound)), "policy web rule 0"))
		}
		if diff := cmp.Diff([]int{2, 2, 2, 2}, counts); diff != "" {
			t.Errorf("rules in the chain, -want +got:\n%s", diff)
		}
		f.desired.ruleset.removeChain("wrong")
		f.Update(manyRanges(0))
		mustApply(t, f)
		if diff := cmp.Diff(canonical(before), canonical(listed(t))); diff != "" {
			t.Errorf("-before +after:\n%s", diff)
		}
	})
}

// TestStageBetween: the caller hears from it between the two transactions, when what is staged has no effect yet.
func TestStageBetween(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(manyRanges(1))
		mustApply(t, f)
		in := func() string {
			rules, _, _ := strings.Cut(counters.ReplaceAllString(run(t, "nft", "list", "chain", "inet", TableName, render.RulesChain(policyID("web"), model.Inbound)), ""), "\t\treturn")
			return strings.TrimSuffix(rules, "\t}\n}\n")
		}
		before, told := in(), 0
		f.cfg.Between = func() {
			told++
			if diff := cmp.Diff(before, in()); diff != "" {
				t.Errorf("what is in force changed, -before +between:\n%s", diff)
			}
		}
		f.Update(manyRanges(2))
		mustApply(t, f)
		if told != 1 || in() == before {
			t.Errorf("told %d times; in the end:\n%s", told, in())
		}
	})
}

// TestStageNewNetworks: rules that look up a new set of networks are in force only after it is filled, once it is there it is changed at
// once.
func TestStageNewNetworks(t *testing.T) {
	netns.Host(t, func() {
		f, told := open(t), 0
		f.Update(netsWorld(workload(1), policyID("web"), model.ActionDeny, model.ActionAllow))
		mustApply(t, f)
		f.cfg.Between = func() {
			told++
			rules, staged, _ := strings.Cut(run(t, "nft", "list", "chain", "inet", TableName, render.RulesChain(policyID("web"), model.Inbound)), "\t\treturn")
			if set := run(t, "nft", "list", "set", "inet", TableName, render.NetSetName(4, "known")); strings.Contains(rules, "@n4-") || !strings.Contains(staged, "@n4-") || !strings.Contains(set, "10.0.0.0/8") {
				t.Errorf("between:\n%s\n%s\n%s", rules, staged, set)
			}
		}
		for _, nets := range []string{"10.0.0.0/8", "10.0.0.0/9"} {
			f.Update(netsChange(nets))
			mustApply(t, f)
		}
		if told != 1 {
			t.Errorf("staged %d times, want once", told)
		}
	})
}
