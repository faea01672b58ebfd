// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import "github.com/calico-go/calico/pkg/model"

// Tiers returns the tiers of ClusterNetworkPolicy, before and after that of NetworkPolicy. They pass on what none of
// their policies decides.
func Tiers() []model.Put {
	tier := func(name string, order float64) model.Put {
		return model.Put{Key: model.TierKey{Tier: name}, Value: model.Tier{Order: &order, DefaultAction: model.TierPass}}
	}
	return []model.Put{tier(AdminTier, 1000), tier(BaselineTier, 10_000_000)}
}
