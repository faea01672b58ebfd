// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestGroups has endpoints come, go and ask other policies at random, some or all
// of them at once, while what policies say changes, and expects the table that a
// new start would make.
func TestGroups(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	names := []string{"a", "b", "c", "d"}
	all := make(map[policy.RulesID]*policy.Rules)
	for _, n := range append(names, "prod") {
		for _, kind := range []policy.RulesKind{policy.KindPolicy, policy.KindProfile} {
			id := policy.RulesID{Kind: kind, Name: n}
			all[id] = &policy.Rules{ID: id, Inbound: []policy.Rule{{Action: model.ActionAllow}}}
		}
	}
	lists := [][]policy.Rule{nil}
	for _, actions := range [][]model.Action{
		{model.ActionAllow}, {model.ActionDeny}, {model.ActionNextTier}, {model.ActionAllow, model.ActionNextTier}, {model.ActionNextTier, model.ActionAllow},
	} {
		var list []policy.Rule
		for _, a := range actions {
			list = append(list, policy.Rule{Action: a})
		}
		lists = append(lists, list)
	}
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{Rules: all})
		have := make(map[string]*policy.Endpoint)
		for step := range 60 {
			for range 1 + r.IntN(3) { // several changes in one transaction
				c := policy.Changes{Endpoints: make(map[string]*policy.Endpoint), Rules: make(map[policy.RulesID]*policy.Rules)}
				for range r.IntN(3) {
					id := policyID(names[r.IntN(len(names))])
					c.Rules[id] = &policy.Rules{ID: id, Inbound: lists[r.IntN(len(lists))], Outbound: lists[r.IntN(len(lists))]}
					switch r.IntN(6) {
					case 0:
						c.Rules[id] = nil
					case 1:
						c.Rules[id].Invalid = "it makes no sense"
					}
				}
				for id, rules := range c.Rules {
					if all[id] = rules; rules == nil {
						delete(all, id)
					}
				}
				if r.IntN(3) == 0 { // a policy comes to all, or goes
					name := names[r.IntN(len(names))]
					alike := make(map[string]*policy.Endpoint) // what an engine tells of them is at one place
					for path, ep := range have {
						var asked []string
						had := false
						for _, id := range ep.Inbound.Policies {
							had = had || id.Name == name
							if id.Name != name {
								asked = append(asked, id.Name)
							}
						}
						if !had {
							asked = append(asked, name)
						}
						ep := numbered(t, path, asked)
						if o := alike[strings.Join(asked, " ")]; o != nil && r.IntN(8) > 0 {
							ep.Inbound, ep.Outbound = o.Inbound, o.Outbound
						}
						alike[strings.Join(asked, " ")] = ep
						c.Endpoints[path] = ep
					}
				}
				n := r.IntN(12)
				ep := workload(n, names[:r.IntN(len(names)+1)]...)
				c.Endpoints[ep.Path] = ep
				if r.IntN(4) == 0 {
					c.Endpoints[ep.Path] = nil
				}
				for path, ep := range c.Endpoints {
					have[path] = ep
					if ep == nil {
						delete(have, path)
					}
				}
				f.Update(c)
			}
			if r.IntN(5) == 0 {
				f.generation = 0 // everything is read
				f.Audit()
			}
			if r.IntN(6) == 0 { // it is killed, maybe between two transactions, and started again with changes to make
				killed(t, f)
				f = open(t)
				f.Update(policy.Changes{Rules: all, Endpoints: have})
			}
			if r.IntN(4) == 0 {
				meddle(t, f, r)
			}
			before := leadsNow(t, f)
			mustApply(t, f)
			noneComes(t, before, leadsNow(t, f))
			fresh := &Firewall{desired: newDesired()}
			fresh.Configure(settings())
			fresh.Update(policy.Changes{Rules: all, Endpoints: have})
			if diff := cmp.Diff(byContent(fresh), byContent(f)); diff != "" {
				t.Fatalf("step %d: -a new start +ours:\n%s", step, diff)
			}
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
				t.Fatalf("step %d: -ours +nft's:\n%s", step, diff)
			}
			f.generation = 0
			f.Audit()
			wantWrites(t, f, 0, 0)
			if r.IntN(5) == 0 { // it is started again, and finds the chains as they are
				f = open(t)
				f.Update(policy.Changes{Rules: all, Endpoints: have})
				wantWrites(t, f, 0, 0)
			}
		}
	})
}

// byContent is the table with groups' chains, which keep their names when they come to
// ask something else, named by what they ask.
func byContent(f *Firewall) string {
	t := f.Table()
	names := make(map[string]string)
	for name, g := range f.desired.groups.named {
		names[name] = groupChain(g.verdicts, g.direction)
	}
	for i, c := range t.Chains {
		if name, ok := names[c.Name]; ok {
			t.Chains[i].Name = name
		}
	}
	slices.SortFunc(t.Chains, func(a, b table.Chain) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range t.Sets {
		for i, e := range s.Elements {
			if s.Data == table.TypeVerdict && names[e.Data] != "" {
				s.Elements[i].Data = names[e.Data]
			}
		}
	}
	return t.String()
}

// numbered is the endpoint of a path that workload made.
func numbered(tb testing.TB, path string, policies []string) *policy.Endpoint {
	tb.Helper()
	n := 0
	if _, err := fmt.Sscanf(path[strings.LastIndex(path, "/w")+2:], "%d", &n); err != nil {
		tb.Fatal(err)
	}
	return workload(n, policies...)
}

// TestGroupKeepsItsChain has a policy come to all endpoints: their chain gets a
// rule more, and stays the one that it was. Whoever comes in the same transaction gets
// a chain of which no packet can see the old rules.
func TestGroupKeepsItsChain(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		c := sample()
		c.Endpoints = endpoints(workload(1, "web"), workload(2, "web"))
		f.Update(c)
		mustApply(t, f)
		chain := groupChain(workload(1, "web").Inbound, model.Inbound)
		before := chainHandle(t, chain)
		f.Update(policy.Changes{Endpoints: endpoints(workload(1, "web", "tier"), workload(2, "web", "tier"))})
		mustApply(t, f)
		if after := chainHandle(t, chain); before != after {
			t.Errorf("the chain's handle was %s and is %s", before, after)
		}
		led := leadsNow(t, f)
		f.Update(policy.Changes{Endpoints: endpoints(workload(1, "web"), workload(2, "web"), workload(3, "web"))})
		mustApply(t, f)
		noneComes(t, led, leadsNow(t, f))
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
	})
}

// chainHandle is the kernel's number of a chain.
func chainHandle(tb testing.TB, chain string) string {
	tb.Helper()
	m := regexp.MustCompile(`chain \S+ \{ # handle (\d+)`).FindStringSubmatch(run(tb, "nft", "-a", "list", "chain", "inet", TableName, chain))
	if m == nil {
		tb.Fatalf("chain %s has no handle", chain)
	}
	return m[1]
}
