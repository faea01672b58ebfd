// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Derived reports whether the controllers make a policy, tier or host endpoint of Kubernetes' own objects, or of themselves.
func Derived(e model.Entry) bool {
	switch key := e.Key.(type) {
	case model.PolicyKey:
		return key.Tier == ProtectionTier || model.KubernetesPolicy(key.Policy)
	case model.TierKey:
		return slices.Contains([]string{ProtectionTier, AdminTier, BaselineTier}, key.Tier)
	case model.HostEndpointKey:
		endpoint, _ := e.Value.(model.HostEndpoint)
		return IsNodeEndpoint(endpoint)
	}
	return false
}
