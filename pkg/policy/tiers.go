// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"iter"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// ByTier iterates over policies that are grouped by tier: it yields each tier's name with its policies in order.
func ByTier(ids []RulesID) iter.Seq2[string, []RulesID] {
	return func(yield func(string, []RulesID) bool) {
		for len(ids) > 0 {
			n := 1
			for n < len(ids) && ids[n].Tier == ids[0].Tier {
				n++
			}
			if !yield(ids[0].Tier, ids[:n:n]) {
				return
			}
			ids = ids[n:]
		}
	}
}

// tier is a tier that has policies or metadata.
type tier struct {
	name string
	says tierSays
	kept bool               // it has metadata
	all  map[string]*policy // its policies, by name
}

// tierSays is the content of a tier's metadata.
type tierSays struct {
	rank rank
	pass bool
	// invalid says why the tier's policies deny: their position, and what follows them, is unknown. It is "" if they
	// don't.
	invalid string
}

// rank is the sort key of tiers, and of the policies in a tier. Invalid ones come first: their intended order is
// unknown, and they must deny.
type rank struct {
	class int // 0 invalid, 1 with an order, 2 without
	order float64
}

func rankOf(order *float64) rank {
	if order == nil {
		return rank{class: 2}
	}
	return rank{1, *order}
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.class, o.class), cmp.Compare(r.order, o.order))
}

func (t *tier) compare(o *tier) int {
	if t == o {
		return 0
	}
	return cmp.Or(t.says.rank.compare(o.says.rank), strings.Compare(t.name, o.name))
}

// saysOf returns what an entry means for a tier. A tier without metadata comes last, and denies.
func saysOf(name string, entry model.Entry) tierSays {
	order := model.DefaultTierOrder
	value, _ := entry.Value.(model.Tier)
	switch {
	case name == model.DefaultTier:
		return tierSays{rank: rankOf(&order)}
	case entry.Exists() && entry.Err != nil:
		return tierSays{invalid: "the metadata of tier " + name + ": " + entry.Err.Error()}
	}
	return tierSays{rank: rankOf(value.Order), pass: value.DefaultAction == model.TierPass}
}

// checkTier returns the problem with a tier's metadata, or nil.
func checkTier(key model.TierKey, t model.Tier, err error) error {
	switch {
	case key.Tier != model.DefaultTier && err != nil:
		return fmt.Errorf("%w; until it is corrected, the policies of tier %s deny what they pick", err, key.Tier)
	case err != nil:
		return err
	case key.Tier == model.DefaultTier && (t.DefaultAction != model.TierDeny || t.Order != nil && *t.Order != model.DefaultTierOrder):
		return fmt.Errorf("tier %s has order %.0f and denies, whatever is stored here: delete it, or give another tier this order and action", model.DefaultTier, model.DefaultTierOrder)
	}
	return nil
}

// tier returns the tier of a name, creating it if unknown.
func (ps *policies) tier(name string) *tier {
	t := ps.tiers[name]
	if t == nil {
		t = &tier{name: name, says: saysOf(name, model.Entry{}), all: map[string]*policy{}}
		ps.tiers[name] = t
	}
	return t
}

// settle drops a tier that has neither policies nor metadata.
func (ps *policies) settle(t *tier) {
	if len(t.all) == 0 && !t.kept {
		delete(ps.tiers, t.name)
	}
}

// updateTier processes the metadata of a tier, and returns its policies if their rules change. The tier's position and
// default action affect the endpoints that its policies select.
func (ps *policies) updateTier(key model.TierKey, entry model.Entry) map[string]*policy {
	t := ps.tier(key.Tier)
	before := t.says
	t.says, t.kept = saysOf(key.Tier, entry), entry.Exists()
	if t.says != before {
		for _, p := range t.all {
			ps.touchAll(p.query)
		}
	}
	ps.settle(t)
	if t.says.invalid == before.invalid {
		return nil
	}
	return t.all
}
