// SPDX-License-Identifier: Apache-2.0

package agent

import "github.com/calico-go/calico/pkg/policy"

// askers knows which endpoints ask a policy or a profile, so that a change of one
// costs what it bears on.
type askers struct {
	of    map[policy.RulesID]map[string]struct{} // paths of endpoints
	asked map[string][]policy.RulesID            // by path
	sizes map[policy.RulesID][2]int              // numbers of rules, inbound and outbound
}

func newAskers() askers {
	return askers{
		of: map[policy.RulesID]map[string]struct{}{}, asked: map[string][]policy.RulesID{}, sizes: map[policy.RulesID][2]int{},
	}
}

func (a *askers) add(path string, ep *policy.Endpoint) {
	for _, ids := range [][]policy.RulesID{
		ep.Inbound.Policies, ep.Inbound.Profiles, ep.UntrackedInbound,
		ep.Outbound.Policies, ep.Outbound.Profiles, ep.UntrackedOutbound,
	} {
		for _, id := range ids {
			if a.of[id] == nil {
				a.of[id] = map[string]struct{}{}
			}
			if _, has := a.of[id][path]; !has {
				a.of[id][path] = struct{}{}
				a.asked[path] = append(a.asked[path], id)
			}
		}
	}
}

func (a *askers) remove(path string) {
	for _, id := range a.asked[path] {
		if delete(a.of[id], path); len(a.of[id]) == 0 {
			delete(a.of, id)
		}
	}
	delete(a.asked, path)
}

// resize takes in what became of rules, nil = they are gone, and says whether
// there are more or fewer.
func (a *askers) resize(id policy.RulesID, r *policy.Rules) bool {
	before, had := a.sizes[id]
	if r == nil {
		delete(a.sizes, id)
		return had
	}
	a.sizes[id] = [2]int{len(r.Inbound), len(r.Outbound)}
	return a.sizes[id] != before
}
