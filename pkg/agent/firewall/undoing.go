// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"slices"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Undoing finds policies that, by their names, older controllers made of NetworkPolicies, and that let everything pass to or from an
// endpoint to which policies of NetworkPolicies apply: these deny nothing by default there. With each comes the path of such an endpoint.
func (r *Reconciler) Undoing() map[model.PolicyKey]string { return undoing(r.state) }

func undoing(st *policy.State) map[model.PolicyKey]string {
	found := map[model.PolicyKey]string{}
	for id, rules := range st.Rules {
		if !kubepolicy.MayBeOlder(id.Name) {
			continue // the endpoints are many
		}
		in, out := passesAll(rules.Inbound), passesAll(rules.Outbound)
		if id.Tier != model.DefaultTier || !in && !out {
			continue
		}
		key := model.PolicyKey{Tier: id.Tier, Policy: id.Name}
		for path, ep := range st.Endpoints {
			if (in && undoes(id, ep.Inbound.Policies) || out && undoes(id, ep.Outbound.Policies)) && (found[key] == "" || path < found[key]) {
				found[key] = path
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

// undoes reports whether a policy is an older one of those that apply.
func undoes(id policy.RulesID, apply []policy.RulesID) bool {
	return slices.Contains(apply, id) && slices.ContainsFunc(apply, func(other policy.RulesID) bool {
		return other.Tier == id.Tier && kubepolicy.Replaces(other.Name, id.Name)
	})
}
