// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// TierAction is what a tier does with packets that none of its policies decides about.
type TierAction string

// UnmarshalText accepts any case.
func (a *TierAction) UnmarshalText(text []byte) error { return word(a, text, a.words()) }

func (TierAction) words() []string { return []string{"Deny", "Pass"} }

// Tier is the spec of a Tier.
type Tier struct {
	Order         *float64   `json:"order,omitempty" doc:"Tiers of a lower one are asked first; those without, last."`
	DefaultAction TierAction `json:"defaultAction,omitempty" default:"Deny" doc:"What becomes of a packet on which policies of the tier apply and none decides. Default Deny."`
}

var tierKind = newKind(one(readTier), writeTier, Kind{
	Name: "Tier", Plural: "Tiers",
	ranges: prefix(model.PolicyPrefix()), of: keyed[model.TierKey], mayDelete: tierInUse, vacant: placesOfTier, implied: model.TierKey{Tier: model.DefaultTier},
	Columns: []Column{
		cell("ORDER", false, func(t *Tier) string { return order(t.Order) }),
		cell("DEFAULTACTION", false, func(t *Tier) string { return string(t.DefaultAction) }),
	},
	custom: &custom{columns: []string{"Order", "order", "Default action", "defaultAction"}, rules: []Validation{
		{"self.metadata.name != 'default' || (!has(self.spec.order) || self.spec.order == 1000000.0) && (!has(self.spec.defaultAction) || self.spec.defaultAction == 'Deny')",
			"spec: the tier default has order 1000000 and action Deny"},
		{"size(self.metadata.name) <= 63", "metadata.name: at most 63 characters"},
	}},
	narrow: func(r Resource) []model.Range { return keyRanges(model.TierKey{Tier: r.Metadata.Name}) },
})

func readTier(key model.TierKey, t *model.Tier, s *Stored) *Tier {
	s.Metadata.Name = key.Tier
	spec := &Tier{Order: new(model.DefaultTierOrder), DefaultAction: "Deny"} // as the tier default, which exists without a value
	if t != nil {
		if spec.Order = t.Order; t.DefaultAction == model.TierPass {
			spec.DefaultAction = "Pass"
		}
	}
	return spec
}

func writeTier(r writing[Tier]) (keys, error) {
	spec := r.spec
	t := model.Tier{Order: spec.Order, Meta: r.meta}
	if spec.DefaultAction == "Pass" {
		t.DefaultAction = model.TierPass
	}
	if r.Metadata.Name == model.DefaultTier && (spec.Order != nil && *spec.Order != model.DefaultTierOrder || spec.DefaultAction == "Pass") {
		return keys{}, r.at("spec", "the tier default has order %.0f and action Deny, whatever is written", model.DefaultTierOrder)
	}
	if r.old == nil {
		if len(r.Metadata.Name) > 63 {
			return keys{}, r.at("metadata.name", "%d characters: at most 63", len(r.Metadata.Name))
		}
		if err := r.dnsName(); err != nil {
			return keys{}, err
		}
	}
	return put(model.TierKey{Tier: r.Metadata.Name}, t), nil
}

// tierInUse returns an error if a tier is reserved or has policies.
func tierInUse(s Stored, entries []model.Entry) error {
	if slices.Contains([]string{"kube-admin", model.DefaultTier, "kube-baseline"}, s.Metadata.Name) {
		return errors.New("this tier is always there")
	}
	n := 0
	for _, e := range entries {
		if key, ok := e.Key.(model.PolicyKey); ok && key.Tier == s.Metadata.Name {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("it has %s: delete them first", Count(n, "policy"))
	}
	return nil
}

// placesOfTier returns the prefix of a tier's keys.
func placesOfTier(name string) []string {
	return []string{strings.TrimSuffix(model.TierKey{Tier: name}.Path(), "metadata")}
}
