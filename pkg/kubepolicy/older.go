// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// NoMatch is the policy by which older controllers pass every pod on to its profiles: while it is there, no NetworkPolicy isolates.
var NoMatch = model.PolicyKey{Tier: PolicyTier, Policy: "k8s-policy-no-match"}

// olderOrder is the order of policies that older controllers made of NetworkPolicies.
const olderOrder = 1000

// Older reports whether older controllers made a policy: NoMatch, or one with the name, the order and the selector that they gave those of
// NetworkPolicies. One of people's that has but such a name is not.
func Older(key model.PolicyKey, p model.Policy) bool {
	if key == NoMatch {
		return true
	}
	if key.Tier != PolicyTier || !MayBeOlder(key.Policy) || p.Order == nil || *p.Order != olderOrder || len(p.Types) > 0 {
		return false
	}
	namespace, _, _ := strings.Cut(key.Policy, ".")
	rest, of := strings.CutPrefix(strings.ReplaceAll(p.Selector, `"`, "'"), model.LabelNamespace+" == '"+namespace+"'")
	return of && (rest == "" || strings.HasPrefix(rest, " && ")) && !strings.Contains(rest, "||")
}

// Undoes reports whether a policy, by its name, takes the effect from another one: of a NetworkPolicy.
func Undoes(older, policy string) bool {
	if older == NoMatch.Policy {
		return strings.HasPrefix(policy, PolicyPrefix)
	}
	return Replaces(policy, older)
}

// MayBeOlder reports whether a policy may be of a NetworkPolicy, as older controllers named it.
func MayBeOlder(policy string) bool {
	return strings.Contains(policy, ".") && !strings.HasPrefix(policy, PolicyPrefix)
}

// Replaces reports whether a policy is of a NetworkPolicy in the namespace of which another is by its name, as older controllers
// gave it: <namespace>.<name>. Later ones called it knp.default.<namespace>.<name>.
func Replaces(policy, older string) bool {
	name, ours := strings.CutPrefix(policy, PolicyPrefix)
	namespace, _, _ := strings.Cut(older, ".")
	namespace += "."
	return ours && MayBeOlder(older) && (strings.HasPrefix(name, namespace) || strings.HasPrefix(name, "default."+namespace))
}
