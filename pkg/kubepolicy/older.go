// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// NoMatch is the policy by which older controllers pass every pod on to its profiles: while it is there, no NetworkPolicy isolates.
var NoMatch = model.PolicyKey{Tier: PolicyTier, Policy: "k8s-policy-no-match"}

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
