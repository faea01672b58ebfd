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

// Older reports whether a policy is as older controllers made them: NoMatch, or one with the name, the order and the selector that
// they gave those of NetworkPolicies. People may have made one like it: only where it has a successor is it left.
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

// Successors are the policies that there are of NetworkPolicies, as these controllers make them.
type Successors map[model.PolicyKey]struct{}

// Set takes in whether a policy is there. One that is named knp.default.<namespace>.<name> doesn't count: it is of the NetworkPolicy
// <namespace>.<name> in the namespace default, or of <name> in <namespace> as yet other controllers named it. These ones today's delete
// or overwrite, as all that begins with PolicyPrefix is theirs.
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

// Of finds what is in the place of an older policy: that of the very NetworkPolicy, or any where it is NoMatch.
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
