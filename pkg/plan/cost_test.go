// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// What a change of a block, an endpoint or a learned route costs must not depend on how many
// routes there are. Memory taken stands for the cost, as time is not the same twice.
func TestCostOfOneChange(t *testing.T) {
	steps := map[string]func(c *cluster, e *engine) []func(){
		"block": func(c *cluster, e *engine) []func() {
			b := c.block(5, 3)
			return toggle(e, c.entry(b.Key, nil), b)
		},
		"endpoint": func(c *cluster, e *engine) []func() {
			key := model.WorkloadEndpointKey{Host: "h3", Orchestrator: "k8s", Workload: "w", Endpoint: "eth0"}
			w := model.WorkloadEndpoint{State: model.StateActive, IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.65.12.1/32")}}
			return toggle(e, c.entry(key, w), c.entry(key, nil))
		},
		"learned": func(c *cluster, e *engine) []func() {
			l := c.learned(5)[3]
			return []func(){func() { e.Learn(Learned{Prefix: l.Prefix}) }, func() { e.Learn(l) }}
		},
	}
	for name, step := range steps {
		mode := model.EncapAlways
		if name == "learned" {
			mode = model.EncapNever
		}
		cost := func(routes int) float64 {
			c, e := loaded(t, mode, routes)
			todo := step(c, e)
			e.compute()
			return testing.AllocsPerRun(20, func() {
				for _, do := range todo {
					do()
					if e.compute().Empty() {
						t.Fatal(name, "changed nothing")
					}
				}
			})
		}
		few, many := cost(100), cost(5000)
		if many > few*1.2 {
			t.Errorf("%s: %v allocations among 5,000 routes, %v among 100", name, many, few)
		}
		t.Logf("%s: %v allocations among 100 routes, %v among 5,000", name, few, many)
	}
}
