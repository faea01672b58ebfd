// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/scale"
)

// BenchmarkShared changes one thing beside 1,000 endpoints of 200 applications
// and 1,000 policies, 15 for each endpoint, from Update to read back.
func BenchmarkShared(b *testing.B) {
	c := scale.Make(scale.Size{Endpoints: 1001, Local: 1001, Policies: 1000, Profiles: 10})
	ports := func(e model.Entry, i int) model.Entry {
		p := e.Value.(model.Policy)
		more := model.Rule{Action: model.ActionAllow, Match: model.Match{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: 1 + uint16(i), Max: 1 + uint16(i)}}}}
		p.Inbound = append([]model.Rule{more}, p.Inbound...)
		e.Value = p
		return e
	}
	for name, change := range map[string]func(i int) model.Entry{
		"endpoint": func(i int) model.Entry {
			e := c.Endpoints[1000]
			if i%2 == 1 {
				e.Value = nil
			}
			return e
		},
		"rule of an application":            func(i int) model.Entry { return ports(c.Policies[100+i%500], i) },
		"rule of all":                       func(i int) model.Entry { return ports(c.Policies[0], i) },
		"policy that comes to all, or goes": func(i int) model.Entry { return everybody(i, false) },
		"the same, of both directions":      func(i int) model.Entry { return everybody(i, true) },
	} {
		b.Run(name, func(b *testing.B) {
			netns.Host(b, func() {
				e := policy.NewEngine(scale.Host)
				e.SetPrefixes([]string{"cali"})
				for _, entries := range [][]model.Entry{c.Pools, c.Profiles, c.Policies, c.Endpoints[:1000]} {
					e.Update(entries...)
				}
				f := open(b)
				f.Update(e.Flush())
				r, writes := mustApply(b, f), 0
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					e.Update(change(i % 60000))
					changes := e.Flush()
					b.StartTimer()
					f.Update(changes)
					writes += mustApply(b, f).Writes
				}
				b.ReportMetric(float64(r.Rules), "rules")
				b.ReportMetric(float64(writes)/float64(b.N), "writes/op")
			})
		})
	}
}

// everybody returns a policy for all endpoints, or for none.
func everybody(i int, outbound bool) model.Entry {
	order := 500.0
	p := model.Policy{Selector: []string{"has(app)", "has(nothing)"}[i%2], Order: &order, Inbound: []model.Rule{{Action: model.ActionAllow}}}
	if outbound {
		p.Outbound = p.Inbound
	}
	key := model.PolicyKey{Tier: "default", Policy: "everybody"}
	return model.Entry{Path: key.Path(), Key: key, Revision: int64(i) + 2, Value: p}
}
