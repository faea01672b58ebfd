// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
)

// ruleset is the desired table, and for each part what the kernel is known to hold. It knows nothing of policy, and does no I/O.
type ruleset struct {
	there   bool // the kernel has the table
	rebuild bool // the table must be recreated
	total   totals
	chains  map[string]*chain
	sets    map[string]*set
	dirty   map[string]bool // names of chains to render
	changed map[string]bool // names of sets with something to write
	unread  bool            // a set is wanted that the kernel has with unknown elements
	later   map[string]int  // chains and sets that wait for another Apply, and since which turn: see choose
	parts   map[string]int  // among these, chains of which only so many rules are written yet
	served  map[string]int  // owners of chains, and the last turn in which something of theirs was written
	turns   int             // number of turns so far
	turn    int             // how many rules of chains that may wait an Apply writes
}

// totals count what the kernel holds.
type totals struct{ rules, sets, members int }

// newRuleset returns a ruleset with the sets that always exist.
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

// chain is a wanted chain, or one yet to be removed.
type chain struct {
	render func() table.Chain // nil = it is no longer wanted
	want   []nfnl.Hash        // of its rules, as last rendered
	there  bool               // the kernel has it
	have   []nfnl.Installed   // rules in the kernel
	former bool               // the kernel has one of this name with another hook, to be replaced: a hook can't be changed
	whole  bool               // the kernel has all of it, or had
	refers []string           // what its rules in the kernel may need
	owner  string             // owner of the chain; an owner's chains share its turns; "" = the chain never waits
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

// encode renders the chain, unless that was done and nothing has changed.
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

// forget makes the chain render again.
func (c *chain) forget() { c.encoded, c.rules, c.needs = false, nil, nil }

// renderAgain renders a wanted chain again.
func (rs *ruleset) renderAgain(name string) {
	rs.chains[name].forget()
	rs.dirty[name] = true
}

// putChain sets how a chain is rendered.
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

// renderAll renders every chain again.
func (rs *ruleset) renderAll() {
	for name := range rs.chains {
		rs.renderAgain(name)
	}
}

// holds notes the rules in the kernel of a chain.
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
	if s.unread { // it was to be removed, and its elements are unknown
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

// replace replaces all elements of a set.
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

// filled reports whether one of the sets has elements.
func (rs *ruleset) filled(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return len(rs.sets[name].elems) > 0 })
}

// settled notes that the kernel holds what is wanted, except what waits.
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
