// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"crypto/sha256"
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

// TestGroups adds, removes and changes endpoints at random, some or all of them at once, while the contents of policies change, and expects
// the table that a new start would create.
func TestGroups(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	names := []string{"a", "b", "c", "d"}
	all := make(map[policy.RulesID]*policy.Rules)
	for _, n := range append(names, "prod") {
		for _, id := range []policy.RulesID{policyID(n), tierID("admin", n), profileID(n)} {
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
			updates, ruled := 1+r.IntN(3), false // several changes in one transaction
			for range updates {
				c := policy.Changes{Endpoints: make(map[string]*policy.Endpoint), Rules: make(map[policy.RulesID]*policy.Rules)}
				for range r.IntN(3) * r.IntN(2) {
					id := tierID([]string{"default", "admin"}[r.IntN(2)], names[r.IntN(len(names))])
					c.Rules[id] = &policy.Rules{ID: id, Inbound: lists[r.IntN(len(lists))], Outbound: lists[r.IntN(len(lists))]}
					switch r.IntN(6) {
					case 0:
						c.Rules[id] = nil
					case 1:
						c.Rules[id].Invalid = "it makes no sense"
					}
				}
				ruled = ruled || len(c.Rules) > 0
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
							had = had || id == policyID(name)
							if id.Tier == "default" && id.Name != name {
								asked = append(asked, id.Name)
							}
						}
						if !had {
							asked = append(asked, name)
						}
						c.Endpoints[path] = tiered(r, numbered(t, path, asked))
					}
				}
				n := r.IntN(12)
				ep := tiered(r, workload(n, names[:r.IntN(len(names)+1)]...))
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
			meddled := r.IntN(4) == 0
			if meddled {
				meddle(t, f, r)
			}
			if meddled || ruled || updates > 1 { // what was wanted in between, or what a policy said before, may be met too
				mustApply(t, f)
			} else {
				applyApart(t, f)
			}
			fresh := &Firewall{desired: newDesired()}
			fresh.Configure(settings())
			fresh.Update(policy.Changes{Rules: all, Endpoints: have})
			if diff := cmp.Diff(unnamed(fresh.Table().String()), unnamed(f.Table().String())); diff != "" {
				t.Fatalf("step %d: -a new start +ours:\n%s", step, diff)
			}
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
				t.Fatalf("step %d: -ours +nft's:\n%s", step, diff)
			}
			f.generation = 0
			f.Audit()
			wantWrites(t, f, 0, 0)
			if r.IntN(5) == 0 { // it is started again
				f = open(t)
				f.Update(policy.Changes{Rules: all, Endpoints: have})
				applyApart(t, f)
			}
		}
	})
}

// tiered sometimes adds policies of a tier to an endpoint, to be asked before the others.
func tiered(r *rand.Rand, ep *policy.Endpoint) *policy.Endpoint {
	for _, v := range []*policy.Verdicts{&ep.Inbound, &ep.Outbound} {
		if r.IntN(3) > 0 {
			continue
		}
		v.Policies = append([]policy.RulesID{tierID("admin", []string{"a", "b"}[r.IntN(2)]), tierID("admin", "c")}, v.Policies...)
		if r.IntN(2) == 0 {
			v.Passing = []string{"admin"}
		}
	}
	return ep
}

// numbered returns the endpoint that workload creates for a path.
func numbered(tb testing.TB, path string, policies []string) *policy.Endpoint {
	tb.Helper()
	n := 0
	if _, err := fmt.Sscanf(path[strings.LastIndex(path, "/w")+2:], "%d", &n); err != nil {
		tb.Fatal(err)
	}
	return workload(n, policies...)
}

// applyApart applies, and expects that a chain to which an element newly leads keeps its former rules, if it had any: a packet in the
// middle of the transaction could meet those.
func applyApart(t *testing.T, f *Firewall) {
	t.Helper()
	rules, led := groupsOf(t, f)
	mustApply(t, f)
	rulesAfter, ledAfter := groupsOf(t, f)
	for key, chain := range ledAfter {
		if old, was := rules[chain]; was && led[key] != chain && !slices.Equal(old, rulesAfter[chain]) {
			t.Errorf("%s comes to chain %s, which has had other rules", key, chain)
		}
	}
}

// groupsOf returns the kernel's rules in groups' chains, by chain, and the chains that interfaces lead to.
func groupsOf(t *testing.T, f *Firewall) (rules map[string][]nfnl.Installed, led map[string]string) {
	t.Helper()
	kernel, err := f.conn.ReadTable()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(kernel.Rules, func(chain string, _ []nfnl.Installed) bool { return !groupName.MatchString(chain) })
	led = make(map[string]string)
	if kernel.There {
		for _, m := range []string{render.MapTo, render.MapFrom} {
			for _, found := range regexp.MustCompile(`"(cali\d+)" : jump ([^\s,]+)`).FindAllStringSubmatch(run(t, "nft", "list", "map", "inet", TableName, m), -1) {
				led[m+" "+found[1]] = found[2]
			}
		}
	}
	return kernel.Rules, led
}

var (
	groupName  = regexp.MustCompile(`\b(to|from)-[0-9a-f]{16}(-\d+)?\b`)
	groupChain = regexp.MustCompile(`(?m)^\tchain ((to|from)-[0-9a-f]{16}(?:-\d+)?) \{\n((?:\t\t.*\n)*)\t\}\n`)
)

// unnamed returns a table with groups' chains renamed after their rules, and moved to the end.
func unnamed(text string) string {
	names := make(map[string]string)
	for _, c := range groupChain.FindAllStringSubmatch(text, -1) {
		names[c[1]] = fmt.Sprintf("%s-%x", c[2], sha256.Sum256([]byte(c[3])))
	}
	rename := func(s string) string {
		return groupName.ReplaceAllStringFunc(s, func(name string) string { return names[name] })
	}
	var chains []string
	text = groupChain.ReplaceAllStringFunc(text, func(c string) string {
		chains = append(chains, rename(c))
		return ""
	})
	slices.Sort(chains)
	return rename(text) + strings.Join(chains, "")
}

// meddle plays another program that changes what leads to groups' chains, or which policies they ask.
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
