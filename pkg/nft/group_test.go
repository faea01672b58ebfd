// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
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
						c.Endpoints[path] = numbered(t, path, asked)
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
			before := groupRules(t, f)
			if r.IntN(4) == 0 {
				meddle(t, f, r)
				before = nil
			}
			mustApply(t, f)
			after := groupRules(t, f)
			for chain, rules := range before {
				if now, stays := after[chain]; stays && !slices.Equal(rules, now) {
					t.Errorf("step %d: chain %s has other rules", step, chain)
				}
			}
			fresh := &Firewall{desired: newDesired()}
			fresh.Configure(settings())
			fresh.Update(policy.Changes{Rules: all, Endpoints: have})
			if diff := cmp.Diff(fresh.Table().String(), f.Table().String()); diff != "" {
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

// numbered is the endpoint of a path that workload made.
func numbered(tb testing.TB, path string, policies []string) *policy.Endpoint {
	tb.Helper()
	n := 0
	if _, err := fmt.Sscanf(path[strings.LastIndex(path, "/w")+2:], "%d", &n); err != nil {
		tb.Fatal(err)
	}
	return workload(n, policies...)
}

// groupRules are the rules that the kernel has in groups' chains, by chain.
func groupRules(t *testing.T, f *Firewall) map[string][]nfnl.Installed {
	t.Helper()
	kernel, err := f.conn.ReadTable()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(kernel.Rules, func(chain string, _ []nfnl.Installed) bool { return !groupName.MatchString(chain) })
	return kernel.Rules
}

var groupName = regexp.MustCompile("^(to|from)-[0-9a-f]{16}$")

// meddle is somebody else who changes what leads to groups' chains, or what they ask.
func meddle(t *testing.T, f *Firewall, r *rand.Rand) {
	t.Helper()
	if !f.desired.ruleset.there {
		return
	}
	var chains, keys []string
	for _, led := range regexp.MustCompile(`"(cali\d+)" : jump ([^\s,]+)`).FindAllStringSubmatch(run(t, "nft", "list", "map", "inet", TableName, render.MapTo), -1) {
		keys, chains = append(keys, led[1]), append(chains, led[2])
	}
	if len(keys) == 0 {
		return
	}
	chain, key := chains[r.IntN(len(chains))], keys[r.IntN(len(keys))]
	switch r.IntN(6) {
	case 0:
		run(t, "nft", "delete element inet calico workloads-to { "+key+" }")
	case 1:
		run(t, "nft", "delete element inet calico workloads-to { "+key+" }; add element inet calico workloads-to { "+key+" : jump "+chain+" }")
	case 2:
		run(t, "nft", "flush chain inet calico "+chain)
	case 3:
		run(t, "nft", "rename chain inet calico "+chain+" to-other")
	case 4:
		run(t, "nft", "add chain inet calico to-foreign; add rule inet calico to-foreign accept; delete element inet calico workloads-to { "+key+" }; add element inet calico workloads-to { "+key+" : jump to-foreign }")
	case 5:
		run(t, "nft", "delete table inet calico")
	}
	f.generation = 0
	f.Audit()
}
