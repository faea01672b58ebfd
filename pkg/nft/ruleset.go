// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
)

// ruleset is the table as it is wanted, and beside each part what the kernel is known
// to hold. It knows nothing of policy, and does no I/O.
type ruleset struct {
	there   bool // the kernel has the table
	rebuild bool // it must be made anew
	total   totals
	chains  map[string]*chain
	sets    map[string]*set
	dirty   map[string]bool // names of chains to render again
	changed map[string]bool // names of sets with something to write
	unread  bool            // a set is wanted that the kernel has, with elements that are not known
	later   map[string]int  // chains and sets that wait for another Apply, and since which turn: see choose
	parts   map[string]int  // of these, chains that get a part of their rules, which is so many in all
	served  map[string]int  // owners of chains, and the last turn in which something of theirs was written
	turns   int             // that there were
	turn    int             // rules that an Apply writes of chains that may wait
}

// totals are of what the kernel holds.
type totals struct{ rules, sets, members int }

// newRuleset has the sets that there always are.
func newRuleset() *ruleset {
	rs := &ruleset{
		chains: make(map[string]*chain), sets: make(map[string]*set),
		dirty: make(map[string]bool), changed: make(map[string]bool), later: make(map[string]int), served: make(map[string]int), turn: turnRules,
	}
	for _, s := range render.Sets() {
		rs.addSet(s)
	}
	return rs
}

// chain is one that is wanted, or one that is still to be removed.
type chain struct {
	render func() table.Chain // nil = it is no longer wanted
	want   []nfnl.Hash        // of its rules, as last rendered
	there  bool               // the kernel has it
	have   []nfnl.Installed   // rules that the kernel has
	former bool               // the kernel has one of its name with another hook, to be replaced: a hook can't be changed
	whole  bool               // the kernel has all of it, or had
	refers []string           // what the rules that the kernel has may need
	owner  string             // whose it is, with whose others it waits for another Apply; "" = it doesn't
	asks   func() []string    // names of policy's sets; may be nil

	// As last rendered, until the kernel has it.
	encoded bool
	def     table.Chain // without its rules
	rules   []*nfnl.Rule
	needs   []string // chains that its rules lead to, and policy's sets
}

func (c *chain) differs() bool {
	return !slices.EqualFunc(c.have, c.want, func(have nfnl.Installed, want nfnl.Hash) bool { return have.Hash == want })
}

// encode renders the chain, unless it was and nothing has changed.
func (c *chain) encode() error {
	if c.encoded {
		return nil
	}
	def := c.render()
	c.rules, c.needs = make([]*nfnl.Rule, len(def.Rules)), nil
	if c.asks != nil {
		c.needs = c.asks()
	}
	for i, r := range def.Rules {
		e, err := nfnl.EncodeRule(r)
		if err != nil {
			return err
		}
		c.rules[i] = e
		for _, s := range r.Do {
			if v, ok := s.(table.Verdict); ok && v.Chain != "" {
				c.needs = append(c.needs, v.Chain)
			}
		}
	}
	c.needs = slices.Compact(slices.Sorted(slices.Values(c.needs)))
	c.def, c.encoded = def, true
	c.def.Rules = nil
	return nil
}

// forget has the chain be rendered again.
func (c *chain) forget() { c.encoded, c.rules, c.needs = false, nil, nil }

// renderAgain has a chain be rendered again that is wanted still.
func (rs *ruleset) renderAgain(name string) {
	rs.chains[name].forget()
	rs.dirty[name] = true
}

// putChain says how a chain is rendered.
func (rs *ruleset) putChain(name string, render func() table.Chain) {
	c := rs.chains[name]
	if c == nil {
		c = &chain{}
		rs.chains[name] = c
	}
	c.render = render
	rs.renderAgain(name)
}

func (rs *ruleset) removeChain(name string) {
	if c := rs.chains[name]; c != nil {
		c.render = nil
		rs.dirty[name] = true
	}
}

// renderAll has every chain rendered again.
func (rs *ruleset) renderAll() {
	for name := range rs.chains {
		rs.renderAgain(name)
	}
}

// holds notes the rules that the kernel has in a chain.
func (rs *ruleset) holds(c *chain, rules []nfnl.Installed) {
	rs.total.rules += len(rules) - len(c.have)
	c.have = rules
}

func (rs *ruleset) addSet(def table.Set) {
	s := rs.sets[def.Name]
	if s == nil {
		s = &set{def: def, elems: make(map[string]string), was: make(map[string]held)}
		rs.sets[def.Name] = s
	}
	if s.unread { // it was to be removed, and what it has is not known
		s.def, rs.unread = def, true
	}
	s.wanted, s.def.Comment = true, def.Comment
	rs.changed[def.Name] = true
}

func (rs *ruleset) removeSet(name string) {
	if s := rs.sets[name]; s != nil {
		s.wanted = false
		for key := range s.elems {
			s.remove(key)
		}
		rs.changed[name] = true
	}
}

// slot is the place of one element.
type slot struct{ set, key string }

func (rs *ruleset) put(at slot, data string) {
	rs.sets[at.set].put(at.key, data)
	rs.changed[at.set] = true
}

func (rs *ruleset) remove(at slot) {
	rs.sets[at.set].remove(at.key)
	rs.changed[at.set] = true
}

// replace gives a set its elements anew.
func (rs *ruleset) replace(name string, elements map[string]string) {
	s := rs.sets[name]
	for key := range s.elems {
		if _, keep := elements[key]; !keep {
			s.remove(key)
		}
	}
	for key, data := range elements {
		s.put(key, data)
	}
	rs.changed[name] = true
}

// filled says whether one of the sets has elements.
func (rs *ruleset) filled(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return len(rs.sets[name].elems) > 0 })
}

// settled notes that the kernel holds what is wanted, but for what waits.
func (rs *ruleset) settled() {
	rs.there, rs.rebuild = true, false
	for name := range rs.dirty {
		c := rs.chains[name]
		if rs.later[name] > 0 {
			continue
		}
		c.refers, c.whole = c.needs, true
		if c.forget(); c.render == nil {
			rs.holds(c, nil)
			delete(rs.chains, name)
		}
		delete(rs.dirty, name)
	}
	for name := range rs.changed {
		s := rs.sets[name]
		if rs.later[name] > 0 {
			continue
		}
		delete(rs.changed, name)
		if s == nil {
			continue
		}
		now := totals{}
		if s.wanted {
			s.there = true
			for key := range s.was {
				if rs.waitsFor(s, key) {
					rs.changed[name] = true
				} else {
					delete(s.was, key)
				}
			}
			now = totals{sets: 1, members: len(s.elems)}
		} else {
			delete(rs.sets, name)
		}
		rs.total.sets += now.sets - s.total.sets
		rs.total.members += now.members - s.total.members
		s.total = now
	}
}
