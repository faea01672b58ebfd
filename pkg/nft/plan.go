// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
)

// plan is what a batch will have changed, to be read back.
type plan struct {
	chains map[string][]nfnl.Hash // rules that the chain should have
	gone   []string               // chains
	sets   []string
	staged bool   // another plan must follow
	after  []*set // sets that exist then
}

// plan fills the batch with the changes from what the kernel is known to hold to what is desired: everything, if the table doesn't exist.
// If rules must be staged, it is only that, and the next plan has the rest.
//
// What no packet reaches before the end of the batch comes first, and the batch may be cut there: new sets with their elements, and new
// chains with their rules.
func (rs *ruleset) plan(b *nfnl.Batch) (plan, error) {
	p := plan{chains: make(map[string][]nfnl.Hash)}
	chains := make([]planned, 0, len(rs.dirty))
	for _, name := range slices.Sorted(maps.Keys(rs.dirty)) {
		if rs.later[name] > 0 && rs.parts[name] == 0 {
			continue
		}
		r := planned{name: name, chain: rs.chains[name]}
		if r.chain.render != nil {
			if err := r.chain.encode(); err != nil {
				return p, fmt.Errorf("chain %s: %w", name, err)
			}
			r.def, r.rules = r.chain.def, r.chain.rules
			if part := rs.parts[name]; part > 0 {
				r.rules = r.rules[:part]
			}
			r.chain.refers = append(r.chain.refers, r.chain.needs...) // until all is done
			r.chain.want = make([]nfnl.Hash, len(r.rules))
			for i := range r.rules {
				r.chain.want[i] = r.rules[i].Hash
			}
			r.fresh = !r.chain.there && r.def.Hook == (table.Hook{})
		}
		chains = append(chains, r)
	}
	if rs.there && !rs.rebuild {
		staged, err := rs.stage(b, chains, &p)
		if err != nil || p.staged {
			p.after = staged
			return p, err
		}
	}
	if rs.rebuild {
		b.DeleteTable()
	}
	if !rs.there {
		b.AddTable()
	}
	rs.planNew(b, chains)
	if !rs.rebuild && rs.rangesIn(chains) {
		b.MustCut()
	}
	for _, r := range chains {
		c := r.chain
		if c.render == nil {
			continue
		}
		if !c.there || c.differs() {
			p.chains[r.name] = c.want
		}
		if r.fresh {
			continue
		}
		if c.former {
			b.FlushChain(r.name)
			b.DeleteChain(r.name)
		}
		if !c.there {
			b.AddChain(r.def)
		}
		changeRules(b, r.name, c.have, r.rules)
	}
	rs.planSets(b, &p)
	rs.planGone(b, chains, &p)
	return p, nil
}

// planned is a chain to write, or to remove if nothing renders it.
type planned struct {
	name  string
	chain *chain
	def   table.Chain // without its rules
	rules []*nfnl.Rule
	fresh bool // new, and not reached by anything yet
}

// planNew adds the new sets and chains that nothing reaches yet.
func (rs *ruleset) planNew(b *nfnl.Batch, chains []planned) {
	for _, s := range rs.newSets() {
		rs.addNewSet(b, s)
	}
	for _, c := range chains {
		if c.fresh {
			b.AddChain(c.def)
			b.MayCut()
		}
	}
	for _, c := range chains {
		if c.fresh {
			for _, r := range c.rules {
				b.AddRule(c.name, r, 0)
				b.MayCut()
			}
		}
	}
}

func (rs *ruleset) addNewSet(b *nfnl.Batch, s *set) {
	var elements []nfnl.Element
	if s.def.Data != table.TypeVerdict { // its chains are yet to come
		elements = s.all()
	}
	b.AddSet(s.def, elements)
}

// newSets returns the sets to create, in order. The kernel finds a set by walking the list of all, in order of creation: those with most
// elements come first, as these change most often.
func (rs *ruleset) newSets() []*set {
	var out []*set
	for name := range rs.changed {
		if s := rs.sets[name]; s != nil && !s.there && s.wanted && rs.later[name] == 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *set) int {
		return cmp.Or(cmp.Compare(len(b.elems), len(a.elems)), strings.Compare(a.def.Name, b.def.Name))
	})
	return out
}

// common returns how many rules two lists have in common at their beginning and at their end.
func common(have []nfnl.Installed, want []*nfnl.Rule) (before, after int) {
	for before < len(have) && before < len(want) && have[before].Hash == want[before].Hash {
		before++
	}
	for after < len(have)-before && after < len(want)-before && have[len(have)-1-after].Hash == want[len(want)-1-after].Hash {
		after++
	}
	return before, after
}

// changeRules turns one list of rules into another. The common beginning and end stay, with their counters; after staging, the common end
// is new.
func changeRules(b *nfnl.Batch, chain string, have []nfnl.Installed, want []*nfnl.Rule) {
	before, after := common(have, want)
	old := have[before : len(have)-after]
	if before+after == 0 && len(old) > 0 {
		b.FlushChain(chain)
		b.Writes += len(old)
	} else {
		for _, r := range old {
			b.DeleteRule(chain, r.Handle)
		}
	}
	position := uint64(0)
	if after > 0 {
		position = have[len(have)-after].Handle
	}
	for _, r := range want[before : len(want)-after] {
		b.AddRule(chain, r, position)
	}
}

// planSets changes the elements of existing sets, and adds those of new verdict maps.
func (rs *ruleset) planSets(b *nfnl.Batch, p *plan) {
	for _, name := range slices.Sorted(maps.Keys(rs.changed)) {
		s := rs.sets[name]
		if s == nil || !s.wanted || rs.later[name] > 0 {
			continue
		}
		var add, del []nfnl.Element
		for key, was := range s.was {
			data, wanted := s.elems[key]
			if was.there == wanted && was.data == data || rs.waitsFor(s, key) {
				continue
			}
			if was.there {
				del = append(del, s.raw(key, ""))
			}
			if wanted {
				add = append(add, s.raw(key, data))
			}
		}
		switch {
		case !s.there && s.def.Data == table.TypeVerdict:
			add, del = s.all(), nil
		case !s.there:
			p.sets = append(p.sets, name)
			continue
		case s.def.Interval && len(add)+len(del) > 0:
			// Ranges are few, and the kernel refuses those that overlap old ones.
			b.Writes += len(add) + len(del)
			b.FlushSet(name)
			b.AddElements(s.def, s.all())
			p.sets = append(p.sets, name)
			continue
		}
		if len(add)+len(del) > 0 || !s.there {
			b.Writes += len(add) + len(del)
			b.DeleteElements(s.def, del)
			b.AddElements(s.def, add)
			p.sets = append(p.sets, name)
		}
	}
}

// planGone removes chains and sets, once nothing refers to them.
func (rs *ruleset) planGone(b *nfnl.Batch, chains []planned, p *plan) {
	for _, c := range chains {
		if c.chain.render == nil && c.chain.there {
			b.FlushChain(c.name)
			p.gone = append(p.gone, c.name)
		}
	}
	for _, name := range p.gone {
		b.DeleteChain(name)
	}
	for _, name := range slices.Sorted(maps.Keys(rs.changed)) {
		if s := rs.sets[name]; s != nil && !s.wanted && s.there && rs.later[name] == 0 {
			b.DeleteSet(name)
		}
	}
}
