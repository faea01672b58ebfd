// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/nft/table"
)

// plan is what a batch will have changed, to be read back.
type plan struct {
	chains map[string][]hash // rules that the chain shall have
	gone   []string          // chains
	sets   []string
	staged bool   // another plan is to follow
	after  []*set // that are there then
}

// plan makes the batch that turns what the kernel is known to hold into what is
// desired. Where the table isn't there at all, that is everything. Where rules have to be
// staged, it is only that, and the next plan has the rest.
//
// What no packet reaches before the end of the batch comes first, and there the
// batch may be cut: sets that are new, with their elements, and chains that are
// new, with their rules.
func (d *desired) plan(b *batch) (plan, error) {
	p := plan{chains: make(map[string][]hash)}
	if err := d.separate(); err != nil {
		return p, err
	}
	chains := make([]planned, 0, len(d.dirty))
	for _, name := range slices.Sorted(maps.Keys(d.dirty)) {
		r := planned{name: name, chain: d.chains[name]}
		if r.chain.render != nil {
			var err error
			if r.def, r.rules, err = r.chain.encoded(); err != nil {
				return p, fmt.Errorf("chain %s: %w", name, err)
			}
			r.chain.want = make([]hash, len(r.rules))
			for i := range r.rules {
				r.chain.want[i] = r.rules[i].hash
			}
			r.fresh = !r.chain.there && r.def.Hook == (table.Hook{})
		}
		chains = append(chains, r)
	}
	if d.there && !d.rebuild {
		staged, err := d.stage(b, chains, &p)
		if err != nil || p.staged {
			p.after = staged
			return p, err
		}
	}
	if d.rebuild {
		b.deleteTable()
		b.writes++
	}
	if !d.there {
		b.addTable()
		b.writes++
	}
	d.planNew(b, chains)
	if d.move(chains) || !d.rebuild && rangesIn(chains) {
		b.mustCut()
	}
	for _, r := range chains {
		c := r.chain
		if c.render == nil {
			continue
		}
		if !c.there || d.differs(c) {
			p.chains[r.name] = c.want
		}
		if r.fresh {
			continue
		}
		if !c.there {
			b.addChain(r.def)
		}
		b.changeRules(r.name, c.have, r.rules)
	}
	d.planSets(b, &p)
	d.planGone(b, chains, &p)
	return p, nil
}

// planned is a chain to write, or to remove where it has nothing to render it.
type planned struct {
	name  string
	chain *chain
	def   table.Chain // without its rules
	rules []*encodedRule
	fresh bool // it is new, and reached by nothing yet
}

// encoded is the chain, without its rules, and its rules.
func (c *chain) encoded() (table.Chain, []*encodedRule, error) {
	if c.encode != nil {
		return c.encode()
	}
	def := c.render()
	list := make([]*encodedRule, len(def.Rules))
	for i, r := range def.Rules {
		e, err := encodeRule(r)
		if err != nil {
			return def, nil, err
		}
		list[i] = e
	}
	def.Rules = nil
	return def, list, nil
}

func (d *desired) differs(c *chain) bool {
	return !slices.EqualFunc(c.have, c.want, func(have installed, want hash) bool { return have.hash == want })
}

// planNew adds the sets and chains that are new and reached by nothing yet.
func (d *desired) planNew(b *batch, chains []planned) {
	for _, s := range d.newSets() {
		d.addNewSet(b, s)
	}
	for _, c := range chains {
		if c.fresh {
			b.addChain(c.def)
			b.mayCut()
		}
	}
	for _, c := range chains {
		if c.fresh {
			for _, r := range c.rules {
				b.addRule(c.name, r, 0)
				b.mayCut()
			}
		}
	}
}

func (d *desired) addNewSet(b *batch, s *set) {
	b.writes++
	b.setID++
	b.addSet(s.def, 0, b.setID)
	b.mayCut()
	if s.def.Data == table.TypeVerdict {
		return // its chains are still to come
	}
	elements := s.raw()
	b.writes += len(elements)
	for chunk := range slices.Chunk(elements, maxElements) {
		b.addElements(s.def, 0, chunk)
		b.mayCut()
	}
}

// newSets are the sets to make. The kernel looks a set up by going through the
// list of all, in the order in which they were made: those with most elements
// come first, for theirs change most.
func (d *desired) newSets() []*set {
	var out []*set
	for name := range d.changed {
		if s := d.sets[name]; s != nil && !s.there && s.wanted {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *set) int {
		return cmp.Or(cmp.Compare(len(b.elems), len(a.elems)), strings.Compare(a.def.Name, b.def.Name))
	})
	return out
}

// common is how many rules two lists both begin and end with.
func common(have []installed, want []*encodedRule) (before, after int) {
	for before < len(have) && before < len(want) && have[before].hash == want[before].hash {
		before++
	}
	for after < len(have)-before && after < len(want)-before && have[len(have)-1-after].hash == want[len(want)-1-after].hash {
		after++
	}
	return before, after
}

// changeRules turns one list of rules into another. What both begin and end with
// stays, and so do its counters; where rules were staged, what both end with is new.
func (b *batch) changeRules(chain string, have []installed, want []*encodedRule) {
	before, after := common(have, want)
	old := have[before : len(have)-after]
	if before+after == 0 && len(old) > 0 {
		b.flushChain(chain)
		b.writes += len(old)
	} else {
		for _, r := range old {
			b.deleteRule(chain, r.handle)
		}
	}
	position := uint64(0)
	if after > 0 {
		position = have[len(have)-after].handle
	}
	for _, r := range want[before : len(want)-after] {
		b.addRule(chain, r, position)
	}
}

// raw are all elements as they are sent. Of a range, the start comes before the
// end, and no other between them: else the kernel may find an overlap.
func (s *set) raw() []rawElement {
	out := make([]rawElement, 0, len(s.elems))
	if s.def.Interval {
		for _, key := range slices.Sorted(maps.Keys(s.elems)) {
			out = append(out, rawOf(&s.def, key, ""))
		}
		return out
	}
	for key, data := range s.elems {
		out = append(out, rawOf(&s.def, key, data))
	}
	return out
}

// planSets changes the elements of sets that are there, and adds those of
// verdict maps that are new.
func (d *desired) planSets(b *batch, p *plan) {
	for _, name := range slices.Sorted(maps.Keys(d.changed)) {
		s := d.sets[name]
		if s == nil || !s.wanted {
			continue
		}
		var add, del []rawElement
		for key, was := range s.was {
			data, wanted := s.elems[key]
			if was.there == wanted && was.data == data {
				continue
			}
			if was.there {
				del = append(del, rawOf(&s.def, key, ""))
			}
			if wanted {
				add = append(add, rawOf(&s.def, key, data))
			}
		}
		switch {
		case !s.there && s.def.Data == table.TypeVerdict:
			add, del = s.raw(), nil
		case !s.there:
			p.sets = append(p.sets, name)
			continue
		case s.def.Interval && len(add)+len(del) > 0:
			// Ranges are few, and those that overlap old ones are refused.
			b.writes += len(add) + len(del)
			b.flushSet(name)
			b.addElements(s.def, 0, s.raw())
			p.sets = append(p.sets, name)
			continue
		}
		if len(add)+len(del) > 0 || !s.there {
			b.writes += len(add) + len(del)
			b.deleteElements(s.def, del)
			b.addElements(s.def, 0, add)
			p.sets = append(p.sets, name)
		}
	}
}

// planGone removes chains and sets, once nothing refers to them.
func (d *desired) planGone(b *batch, chains []planned, p *plan) {
	for _, c := range chains {
		if c.chain.render == nil && c.chain.there {
			b.flushChain(c.name)
			p.gone = append(p.gone, c.name)
		}
	}
	for _, name := range p.gone {
		b.deleteChain(name)
	}
	for _, name := range slices.Sorted(maps.Keys(d.changed)) {
		if s := d.sets[name]; s != nil && !s.wanted && s.there {
			b.deleteSet(name)
		}
	}
}
