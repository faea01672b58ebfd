// SPDX-License-Identifier: Apache-2.0

package firewall

import "github.com/calico-go/calico/pkg/policy"

// users maps policies and profiles to the endpoints that have them, so that a change of one costs only what it affects.
type users struct {
	of    map[policy.RulesID]map[string]int // how many times each path's endpoint has it
	sizes map[policy.RulesID][2]int         // numbers of rules, inbound and outbound
}

func newUsers() users {
	return users{of: map[policy.RulesID]map[string]int{}, sizes: map[policy.RulesID][2]int{}}
}

// put records what an endpoint was and is, nil = it doesn't exist. The cost is that of the difference: with a policy new to all endpoints,
// one step each.
func (a *users) put(path string, old, ep *policy.Endpoint) {
	before, after := old.Lists(), ep.Lists()
	for i := range before {
		had, has := policy.Trim(before[i], after[i])
		for _, id := range has {
			if a.of[id] == nil {
				a.of[id] = map[string]int{}
			}
			a.of[id][path]++
		}
		for _, id := range had {
			if a.of[id][path]--; a.of[id][path] == 0 {
				delete(a.of[id], path)
			}
			if len(a.of[id]) == 0 {
				delete(a.of, id)
			}
		}
	}
}

// resize records new rules, nil = they are gone, and reports whether their number changed.
func (a *users) resize(id policy.RulesID, r *policy.Rules) bool {
	before, had := a.sizes[id]
	if r == nil {
		delete(a.sizes, id)
		return had
	}
	a.sizes[id] = [2]int{len(r.Inbound), len(r.Outbound)}
	return a.sizes[id] != before
}
