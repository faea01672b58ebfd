// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
)

// observe reads everything and notes what the kernel holds. Anything unknown becomes something to remove. Differences from what was known
// count as repairs, even if an error follows: the next try knows what was noted until then.
func (f *Firewall) observe(r *Report) error {
	t, err := f.conn.ReadTable()
	if err != nil {
		return err
	}
	if !f.started {
		f.desired.keepTranslating(t)
	}
	hooks := f.desired.hooks()
	remake := f.remake || t.Foreign || f.desired.unfit(t, hooks)
	repairs, err := f.desired.ruleset.observe(f.conn, t, hooks, remake)
	if f.started {
		r.Repairs += repairs
	} else {
		f.desired.interfaces.groups.separate()
	}
	return err
}

// hooks returns the hooks of base chains, by name.
func (d *desired) hooks() map[string]nfnl.Hook {
	hooks := make(map[string]nfnl.Hook)
	for _, c := range d.renderer().Base(render.All()) {
		hooks[c.Name] = nfnl.HookOf(c.Hook)
	}
	return hooks
}

// unfit reports whether a part of the table is of another kind, so that the whole table must be recreated. A base chain with another hook
// can be replaced alone, as no rule leads to it. Unwanted parts, noted by an earlier try, are removed whatever they are.
func (d *desired) unfit(t nfnl.Contents, hooks map[string]nfnl.Hook) bool {
	for name, at := range t.Chains {
		if c := d.ruleset.chains[name]; c != nil && c.render != nil && (at == "") != (hooks[name] == "") {
			return true
		}
	}
	for name, kind := range t.Sets {
		if s := d.ruleset.sets[name]; s != nil && s.wanted && nfnl.ShapeOf(&s.def) != kind {
			return true
		}
	}
	return false
}

// observe notes what the kernel holds, and counts differences from what was known. If the table must be recreated, it notes an empty one.
func (rs *ruleset) observe(conn *nfnl.Conn, t nfnl.Contents, hooks map[string]nfnl.Hook, remake bool) (repairs int, err error) {
	rs.there, rs.rebuild = t.There, t.There && remake
	if rs.rebuild {
		t, rs.there = nfnl.Contents{}, false
		repairs++
	}
	for name, c := range rs.chains {
		at, there := t.Chains[name]
		rules := t.Rules[name]
		if c.former = there && c.render != nil && at != hooks[name]; c.former {
			there, rules = false, nil
			rs.dirty[name] = true
		}
		if rs.observeChain(name, c, there, rules) || c.former {
			repairs++
		}
	}
	for name := range t.Chains {
		if rs.chains[name] == nil {
			rs.chains[name] = &chain{there: true}
			rs.holds(rs.chains[name], t.Rules[name])
			rs.dirty[name] = true
			repairs++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rs.sets)) {
		_, there := t.Sets[name]
		n, err := rs.observeSet(conn, rs.sets[name], there)
		if err != nil {
			return repairs, err
		}
		repairs += n
	}
	for name := range t.Sets {
		if rs.sets[name] == nil {
			rs.sets[name] = &set{def: table.Set{Name: name}, there: true, unread: true, elems: make(map[string]string), was: make(map[string]held)}
			rs.changed[name] = true
			repairs++
		}
	}
	return repairs, nil
}

// observeChain notes what the kernel holds of a chain and reports whether it differs from what was known.
func (rs *ruleset) observeChain(name string, c *chain, there bool, rules []nfnl.Installed) bool {
	if c.there == there && slices.Equal(c.have, rules) {
		return false
	}
	known := c.there || c.have != nil
	if known && there {
		// A known rule with another handle was put in again by another program: whatever its user data says, it isn't ours.
		handles := make(map[nfnl.Installed]bool, len(c.have))
		for _, r := range c.have {
			handles[r] = true
		}
		for i := range rules {
			if !handles[rules[i]] {
				rules[i].Hash = nfnl.Hash{}
			}
		}
	}
	c.there = there
	rs.holds(c, rules)
	rs.dirty[name] = true
	return known || there
}

// observeSet does the same for a set, and counts the elements that differ. If it can't be read, nothing is noted.
func (rs *ruleset) observeSet(conn *nfnl.Conn, s *set, there bool) (repairs int, err error) {
	was, known := s.there, s.was
	if !there {
		s.there, s.was = false, make(map[string]held)
		if was || len(s.elems) > 0 {
			rs.changed[s.def.Name] = true
		}
		if was {
			repairs = 1
		}
		return repairs, nil
	}
	if s.unread {
		if !s.wanted {
			return 0, nil
		}
		s.unread, was = false, false
	}
	differing, err := s.read(conn)
	if err != nil {
		return 0, err
	}
	s.there, s.was = true, differing
	for key, now := range differing {
		before, noted := known[key]
		if !noted {
			before.data, before.there = s.elems[key]
		}
		if was && before != now {
			repairs++
		}
	}
	for key, before := range known {
		if now, differs := differing[key]; was && !differs {
			if now.data, now.there = s.elems[key]; before != now {
				repairs++
			}
		}
	}
	if !was || len(differing) > 0 {
		rs.changed[s.def.Name] = true
	}
	return repairs, nil
}

// read returns what the kernel holds where that differs from what is wanted.
func (s *set) read(conn *nfnl.Conn) (map[string]held, error) {
	if s.def.Timeout || s.def.Expires > 0 {
		return map[string]held{}, nil // its elements come and go by themselves: see Firewall.Cut and table.Add
	}
	differing, right := make(map[string]held), make(map[string]struct{}, len(s.elems))
	err := conn.ReadElements(&s.def, func(e nfnl.Element) {
		if s.wants(e) {
			right[s.key(e)] = struct{}{}
		} else {
			differing[s.key(e)] = held{true, e.Data}
		}
	})
	for key := range s.elems {
		_, ok := right[key]
		if _, other := differing[key]; !ok && !other {
			differing[key] = held{}
		}
	}
	return differing, err
}
