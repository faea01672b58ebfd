// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// NoMatch is the policy with which older controllers pass every pod on to its profiles. While it exists, no
// NetworkPolicy isolates.
var NoMatch = model.PolicyKey{Tier: PolicyTier, Policy: "k8s-policy-no-match"}

// olderOrder is the order of policies that older controllers made from NetworkPolicies.
const olderOrder = 1000

// Older reports whether a policy looks like one of older controllers: NoMatch, or one with the name, order and selector
// that they used for NetworkPolicies. A person may have made one like it, so it counts as left over only if it has a
// successor.
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

// Successors are the existing policies of NetworkPolicies, as made by today's controllers.
type Successors map[model.PolicyKey]struct{}

// Set records whether a policy exists. One named knp.default.<namespace>.<name> doesn't count: it may be for the
// NetworkPolicy <namespace>.<name> in the namespace default, or for <name> in <namespace> under the naming of other
// controllers. Today's controllers delete or overwrite the latter, because everything with PolicyPrefix is theirs.
func (s Successors) Set(key model.PolicyKey, there bool) {
	name, ours := strings.CutPrefix(key.Policy, PolicyPrefix)
	switch inDefault, is := strings.CutPrefix(name, "default."); {
	case key.Tier != PolicyTier || !ours || is && strings.Contains(inDefault, "."):
	case there:
		s[key] = struct{}{}
	default:
		delete(s, key)
	}
}

// Of returns the successor of an older policy: the one of the same NetworkPolicy or, for NoMatch, any.
func (s Successors) Of(older model.PolicyKey) (key model.PolicyKey, there bool) {
	if older == NoMatch {
		for key = range s {
			return key, true
		}
		return key, false
	}
	key = model.PolicyKey{Tier: older.Tier, Policy: PolicyPrefix + older.Policy}
	_, there = s[key]
	return key, there
}

// MayBeOlder reports whether a policy's name may be one that older controllers used for a NetworkPolicy.
func MayBeOlder(policy string) bool {
	return strings.Contains(policy, ".") && !strings.HasPrefix(policy, PolicyPrefix)
}

// Replaces reports whether a policy is that of a NetworkPolicy in the same namespace as the one for which older
// controllers used the name older, <namespace>.<name>. Later controllers used knp.default.<namespace>.<name>.
func Replaces(policy, older string) bool {
	name, ours := strings.CutPrefix(policy, PolicyPrefix)
	namespace, _, _ := strings.Cut(older, ".")
	namespace += "."
	return ours && MayBeOlder(older) && (strings.HasPrefix(name, namespace) || strings.HasPrefix(name, "default."+namespace))
}
