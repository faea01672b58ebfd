// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// TierAction is what a tier does where none of its policies decides.
type TierAction string

// UnmarshalText reads it in any case.
func (a *TierAction) UnmarshalText(text []byte) error { return word(a, text, a.words()) }

func (TierAction) words() []string { return []string{"Deny", "Pass"} }

// Tier is the spec of a Tier.
type Tier struct {
	Order         *float64   `json:"order,omitempty" doc:"Tiers of a lower one are asked first; those without, last."`
	DefaultAction TierAction `json:"defaultAction,omitempty" doc:"What becomes of a packet on which policies of the tier apply and none decides. Default Deny."`
}

func readTiers(entries []model.Entry) []Stored {
	return each(entries, func(key model.TierKey, e model.Entry, s *Stored) {
		spec := &Tier{DefaultAction: "Deny"}
		s.Spec, s.Metadata.Name = spec, key.Tier
		if t, ok := parsed[model.Tier](e); ok {
			spec.Order = t.Order
			if t.DefaultAction == model.TierPass {
				spec.DefaultAction = "Pass"
			}
		}
	})
}

// defaultTier is there without a key.
func defaultTier() Stored {
	order, s := model.DefaultTierOrder, Stored{}
	s.Metadata.Name, s.Spec = model.DefaultTier, &Tier{Order: &order, DefaultAction: "Deny"}
	return s
}

func writeTier(r Resource, old *Stored, _ []model.Entry) (keys, error) {
	spec := r.Spec.(*Tier)
	t := model.Tier{Order: spec.Order}
	if spec.DefaultAction == "Pass" {
		t.DefaultAction = model.TierPass
	}
	if r.Metadata.Name == model.DefaultTier && (spec.Order != nil && *spec.Order != model.DefaultTierOrder || spec.DefaultAction == "Pass") {
		return keys{}, r.at("spec", "the tier default has order %.0f and action Deny, whatever is written", model.DefaultTierOrder)
	}
	if old == nil {
		if len(r.Metadata.Name) > 63 {
			return keys{}, r.at("metadata.name", "%d characters: at most 63", len(r.Metadata.Name))
		}
		if err := r.dnsName(); err != nil {
			return keys{}, err
		}
	}
	return put(model.TierKey{Tier: r.Metadata.Name}, t), nil
}

// tierInUse refuses to delete a tier that is reserved or has policies.
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

// placesOfTier are where its policies are.
func placesOfTier(name string) []string {
	return []string{strings.TrimSuffix(model.TierKey{Tier: name}.Path(), "metadata")}
}

func narrowTier(r Resource) []model.Range {
	return []model.Range{model.KeyRange(model.TierKey{Tier: r.Metadata.Name})}
}
