// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// cluster returns n endpoints and n policies. Each endpoint has two of the policies, each policy five rules and a set.
func cluster(n int) policy.Changes {
	c := policy.Changes{
		Endpoints: make(map[string]*policy.Endpoint), Sets: make(map[policy.SetID]*policy.SetChange),
		Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{{Action: model.ActionAllow}}, Outbound: []policy.Rule{{Action: model.ActionAllow}}}),
	}
	for i := range n {
		ep := workload(i, fmt.Sprintf("policy-%d", i), fmt.Sprintf("policy-%d", (i+1)%n))
		c.Endpoints[ep.Path] = ep
		r := clusterRules(i, 80)
		c.Rules[r.ID] = &r
		c.Sets[policy.SetID(fmt.Sprintf("set-%d", i))] = &policy.SetChange{
			Kind: policy.KindAddrs, Text: fmt.Sprintf("selector app == 'a%d'", i), New: true, Added: members(i*20, 20),
		}
	}
	return c
}

func clusterRules(i int, port uint16) policy.Rules {
	r := policy.Rules{ID: policyID(fmt.Sprintf("policy-%d", i))}
	for n := range 5 {
		r.Inbound = append(r.Inbound, policy.Rule{Action: model.ActionAllow, Match: policy.Criteria{
			Protocol: model.ProtocolTCP, SrcSets: []policy.SetID{policy.SetID(fmt.Sprintf("set-%d", i))},
			DstPorts: []model.Port{{Min: port + uint16(n), Max: port + uint16(n)}},
		}})
	}
	return r
}

func loaded(b *testing.B, n int) *Firewall {
	f := open(b)
	f.Update(cluster(n))
	f.Links(loadedLinks(n))
	mustApply(b, f)
	return f
}

func loadedLinks(n int) map[string]int {
	links := make(map[string]int)
	for i := range n {
		links[fmt.Sprint("cali", i)] = 100000 + i
	}
	return links
}

// BenchmarkFirst writes 1,000 endpoints and 1,000 policies to an empty kernel.
func BenchmarkFirst(b *testing.B) {
	c := cluster(1000)
	for b.Loop() {
		netns.Host(b, func() {
			f := open(b)
			f.Update(c)
			f.Links(loadedLinks(1000))
			r := mustApply(b, f)
			b.ReportMetric(float64(r.Rules), "rules")
		})
	}
}

// BenchmarkChange changes one thing beside 1,000 endpoints and 1,000 policies,
// from Update to read back.
func BenchmarkChange(b *testing.B) {
	for name, change := range map[string]func(i int) (policy.Changes, map[string]int){
		"element": func(i int) (policy.Changes, map[string]int) {
			c := &policy.SetChange{Added: members(1<<20, 1)}
			if i%2 == 1 {
				c.Added, c.Removed = nil, c.Added
			}
			return policy.Changes{Sets: map[policy.SetID]*policy.SetChange{"set-7": c}}, nil
		},
		"rule": func(i int) (policy.Changes, map[string]int) {
			return policy.Changes{Rules: rules(clusterRules(7, uint16(81+i%1000)))}, nil
		},
		"link": func(i int) (policy.Changes, map[string]int) { return policy.Changes{}, map[string]int{"cali7": i % 2} },
		"endpoint": func(i int) (policy.Changes, map[string]int) {
			ep := workload(1<<15, "policy-7", "policy-8")
			c := policy.Changes{Endpoints: endpoints(ep)}
			if i%2 == 1 {
				c.Endpoints[ep.Path] = nil
			}
			return c, map[string]int{ep.Interface: 200000}
		},
	} {
		b.Run(name, func(b *testing.B) {
			netns.Host(b, func() {
				f := loaded(b, 1000)
				i := 0
				for b.Loop() {
					c, links := change(i)
					f.Update(c)
					f.Links(links)
					if r := mustApply(b, f); r.Writes == 0 {
						b.Fatal("nothing was written")
					}
					i++
				}
			})
		})
	}
}

// BenchmarkAudit compares 1,000 endpoints and 1,000 policies with the kernel: with the ruleset unchanged, with another table changed, and
// after a restart.
func BenchmarkAudit(b *testing.B) {
	b.Run("unchanged", func(b *testing.B) {
		netns.Host(b, func() {
			f := loaded(b, 1000)
			for b.Loop() {
				f.Audit()
				mustApply(b, f)
			}
		})
	})
	b.Run("another table changed", func(b *testing.B) {
		netns.Host(b, func() {
			f := loaded(b, 1000)
			for b.Loop() {
				f.generation = 0 // as after another program's transaction
				f.Audit()
				mustApply(b, f)
			}
		})
	})
	b.Run("restart", func(b *testing.B) {
		c := cluster(1000)
		netns.Host(b, func() {
			loaded(b, 1000)
			for b.Loop() {
				f := open(b)
				f.Update(c)
				f.Links(loadedLinks(1000))
				if r := mustApply(b, f); r.Writes != 0 {
					b.Fatalf("%d writes", r.Writes)
				}
			}
		})
	})
}
