// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"slices"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Undoing returns policies whose names say that older controllers wrote them for NetworkPolicies, and that let everything pass to or from
// an endpoint to which current policies of NetworkPolicies apply: those deny nothing by default there. Each comes with the path of such an
// endpoint.
func (r *Reconciler) Undoing() map[model.PolicyKey]string { return undoing(r.state) }

func undoing(st *policy.State) map[model.PolicyKey]string {
	found := map[model.PolicyKey]string{}
	suspects := map[policy.RulesID][2]bool{} // by direction
	for id, rules := range st.Rules {
		if id.Tier != model.DefaultTier || !kubepolicy.MayBeOlder(id.Name) {
			continue
		}
		if passes := [2]bool{passesAll(rules.Inbound), passesAll(rules.Outbound)}; passes != [2]bool{} {
			suspects[id] = passes
		}
	}
	if len(suspects) == 0 { // as nearly always: endpoints are many
		return found
	}
	for path, ep := range st.Endpoints {
		for outbound, apply := range [...][]policy.RulesID{ep.Inbound.Policies, ep.Outbound.Policies} {
			for _, id := range apply {
				key := model.PolicyKey{Tier: id.Tier, Policy: id.Name}
				if suspects[id][outbound] && undoes(id, apply) && (found[key] == "" || path < found[key]) {
					found[key] = path
				}
			}
		}
	}
	return found
}

func passesAll(rules []policy.Rule) bool {
	return slices.ContainsFunc(rules, func(r policy.Rule) bool {
		return r.Always() && (r.Action == model.ActionAllow || r.Action == model.ActionNextTier)
	})
}

// undoes reports whether one of the policies that apply replaces this one.
func undoes(id policy.RulesID, apply []policy.RulesID) bool {
	return slices.ContainsFunc(apply, func(other policy.RulesID) bool {
		return other.Tier == id.Tier && kubepolicy.Replaces(other.Name, id.Name)
	})
}
