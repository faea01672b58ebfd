// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"maps"
	"runtime"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/scale"
)

var sizes = []int{1_000, 10_000, 100_000}

// BenchmarkInitial measures from nothing to the first Flush, on one core.
func BenchmarkInitial(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			cluster := scale.Make(scale.Typical(n))
			entries := cluster.Entries()
			var e *policy.Engine
			var c policy.Changes
			for b.Loop() {
				e = policy.NewEngine(scale.Host)
				e.Update(entries...)
				c = e.Flush()
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			members := 0
			for _, s := range c.Sets {
				members += len(s.Added)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-live")
			b.ReportMetric(float64(len(c.Rules)), "rules")
			b.ReportMetric(float64(len(c.Sets)), "sets")
			b.ReportMetric(float64(members), "members")
			runtime.KeepAlive(e)
			runtime.KeepAlive(entries)
		})
	}
}

// loaded returns an engine that has reported everything.
func loaded(n int) (*policy.Engine, *scale.Cluster) {
	cluster := scale.Make(scale.Typical(n))
	e := policy.NewEngine(scale.Host)
	e.Update(cluster.Entries()...)
	e.Flush()
	runtime.GC()
	return e, cluster
}

// alternate measures Update, Flush and Invalid for one change and its opposite, as in each turn of the agent's loop.
func alternate(b *testing.B, e *policy.Engine, states [2]model.Entry) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.Update(states[i%2])
		e.Flush()
		e.Invalid()
	}
}

// relabelled is a remote endpoint with another value of a label.
func relabelled(entry model.Entry, name, value string) model.Entry {
	w := entry.Value.(model.WorkloadEndpoint)
	w.Labels = maps.Clone(w.Labels)
	w.Labels[name] = value
	entry.Value = w
	return entry
}

// BenchmarkRemoteLabel: a remote endpoint moves from one set in use to another, so members change.
func BenchmarkRemoteLabel(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			e, cluster := loaded(n)
			last := cluster.Endpoints[n-1]
			alternate(b, e, [2]model.Entry{relabelled(last, "zone", "z1"), relabelled(last, "zone", "z2")})
		})
	}
}

// BenchmarkRemoteLabelUnused: the same for a label that no rule here uses.
func BenchmarkRemoteLabelUnused(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			e, cluster := loaded(n)
			last := cluster.Endpoints[n-1]
			alternate(b, e, [2]model.Entry{relabelled(last, "pod", "a"), relabelled(last, "pod", "b")})
		})
	}
}

// BenchmarkManyProfiles: a remote endpoint's label changes among profiles that it doesn't name.
func BenchmarkManyProfiles(b *testing.B) {
	for _, n := range []int{10, 1_000, 50_000} {
		b.Run(fmt.Sprintf("profiles=%d", n), func(b *testing.B) {
			cluster := scale.Make(scale.Size{Endpoints: 1000, Local: 50, Policies: 100, Profiles: n})
			e := policy.NewEngine(scale.Host)
			e.Update(cluster.Entries()...)
			e.Flush()
			last := cluster.Endpoints[len(cluster.Endpoints)-1]
			alternate(b, e, [2]model.Entry{relabelled(last, "zone", "z1"), relabelled(last, "zone", "z2")})
		})
	}
}

// BenchmarkPolicyElsewhere: a policy that applies to no endpoint here changes its rules, or its selector.
func BenchmarkPolicyElsewhere(b *testing.B) {
	for _, n := range sizes {
		for _, what := range []string{"rules", "selector"} {
			b.Run(fmt.Sprintf("%s/endpoints=%d", what, n), func(b *testing.B) {
				e, cluster := loaded(n)
				// Applications are dealt out in turn: that of the last policy is none of the first endpoints'.
				old := cluster.Policies[len(cluster.Policies)-1]
				p := old.Value.(model.Policy)
				if what == "rules" {
					p.Inbound = p.Inbound[:1]
				} else {
					p.Selector += ` && zone == "z1"`
				}
				changed := old
				changed.Value = p
				alternate(b, e, [2]model.Entry{changed, old})
			})
		}
	}
}

// BenchmarkPolicyHere: a policy of one local endpoint changes its rules.
func BenchmarkPolicyHere(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			e, cluster := loaded(n)
			old := cluster.Policies[14] // of application 14: the selector doesn't ask for env
			p := old.Value.(model.Policy)
			p.Inbound = p.Inbound[:1]
			changed := old
			changed.Value = p
			alternate(b, e, [2]model.Entry{changed, old})
		})
	}
}

// BenchmarkPolicyEverywhere: a thousand local endpoints with a thousand policies each gain and lose a policy.
func BenchmarkPolicyEverywhere(b *testing.B) {
	cluster := scale.Make(scale.Size{Endpoints: 1000, Local: 1000, Policies: 10, Profiles: 10})
	e := policy.NewEngine(scale.Host)
	e.Update(cluster.Entries()...)
	all := func(i int) model.Entry {
		k := model.PolicyKey{Tier: "default", Policy: fmt.Sprintf("all-%d", i)}
		order := float64(i)
		return model.Entry{Path: k.Path(), Key: k, Revision: 1, Value: model.Policy{Selector: "all()", Order: &order, Inbound: []model.Rule{{Action: model.ActionAllow}}}}
	}
	for i := range 1000 {
		e.Update(all(i))
	}
	e.Flush()
	gone := all(500)
	gone.Revision, gone.Value = 0, nil
	alternate(b, e, [2]model.Entry{gone, all(500)})
}

// BenchmarkPolicyOfAll: a thousand local endpoints of 200 applications gain and lose a policy, with about 15 others
// each.
func BenchmarkPolicyOfAll(b *testing.B) {
	cluster := scale.Make(scale.Size{Endpoints: 1000, Local: 1000, Policies: 1000, Profiles: 10})
	e := policy.NewEngine(scale.Host)
	e.Update(cluster.Entries()...)
	e.Flush()
	key, order := model.PolicyKey{Tier: "default", Policy: "everybody"}, 500.0
	of := func(text string) model.Entry {
		return model.Entry{Path: key.Path(), Key: key, Revision: 1, Value: model.Policy{Selector: text, Order: &order, Inbound: []model.Rule{{Action: model.ActionAllow}}}}
	}
	alternate(b, e, [2]model.Entry{of("has(app)"), of("has(nothing)")})
}

// BenchmarkTierOrder moves a tier before and after default: its policy selects 5 of a thousand local endpoints.
func BenchmarkTierOrder(b *testing.B) {
	cluster := scale.Make(scale.Size{Endpoints: 1000, Local: 1000, Policies: 1000, Profiles: 10})
	e := policy.NewEngine(scale.Host)
	e.Update(cluster.Entries()...)
	key := model.PolicyKey{Tier: "first", Policy: "p"}
	e.Update(model.Entry{Path: key.Path(), Key: key, Revision: 1, Value: model.Policy{Selector: `app == "app-1"`}})
	e.Flush()
	tier := model.TierKey{Tier: key.Tier}
	at := func(order float64) model.Entry {
		return model.Entry{Path: tier.Path(), Key: tier, Revision: 1, Value: model.Tier{Order: &order}}
	}
	alternate(b, e, [2]model.Entry{at(1), at(2 * model.DefaultTierOrder)})
}
