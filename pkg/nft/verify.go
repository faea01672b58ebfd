// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
)

// maxFind is how many elements of a set are read back one by one; more are read
// with all others in one dump.
const maxFind = 2000

// verify reads back what a batch changed, and notes it.
func (f *Firewall) verify(p plan) error {
	d := f.desired
	rules, err := f.readChains(p)
	if err != nil {
		return err
	}
	for name, want := range p.chains {
		c := d.chains[name]
		for i, r := range rules[name] {
			if i < len(c.have) && c.have[i].Handle == r.Handle {
				rules[name][i] = c.have[i] // where somebody else put it in, that is still so
			}
		}
		d.holds(c, rules[name])
		if d.differs(c) {
			return fmt.Errorf("chain %s has %d rules that are not the %d that were written", name, len(c.have), len(want))
		}
		c.there = true
	}
	var some, empty []*set
	for _, name := range p.sets {
		set := d.sets[name]
		if !set.there && len(set.elems) == 0 {
			empty = append(empty, set)
		} else if set.there && !set.def.Interval && len(set.was) <= maxFind {
			some = append(some, set)
		} else if err := d.verifyWholeSet(f.conn, set); err != nil {
			return err
		}
	}
	if err := d.verifyEmpty(f.conn, empty); err != nil {
		return err
	}
	return verifyElements(f.conn, some)
}

// manyEmpty is of how many sets to list all takes less than to ask for the elements of each:
// the kernel goes through all sets for one, several times.
const manyEmpty = 32

// verifyEmpty reads back sets that were made without elements.
func (d *desired) verifyEmpty(c *nfnl.Conn, sets []*set) error {
	if len(sets) <= manyEmpty {
		for _, set := range sets {
			if err := d.verifyWholeSet(c, set); err != nil {
				return err
			}
		}
		return nil
	}
	there, err := c.ReadSets()
	if err != nil {
		return err
	}
	for _, set := range sets {
		if kind, ok := there[set.def.Name]; !ok || kind != nfnl.ShapeOf(&set.def) {
			return fmt.Errorf("set %s is not there as it was written", set.def.Name)
		}
	}
	return nil
}

// verifyElements reads back the elements of sets that changed, many at once.
func verifyElements(c *nfnl.Conn, sets []*set) error {
	var questions []*nfnl.Question
	var checks []func() error
	asked := 0
	finish := func() error {
		if asked == 0 {
			return nil
		}
		if err := c.Ask(questions); err != nil {
			return fmt.Errorf("read elements of sets: %w", err)
		}
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		questions, checks, asked = nil, nil, 0
		return nil
	}
	ask := func(set *set, elements []nfnl.Element, wanted bool) error {
		if asked+len(elements) > nfnl.MaxAsked {
			if err := finish(); err != nil {
				return err
			}
		}
		asked += len(elements)
		right := 0
		q := &nfnl.Question{Set: &set.def, Elements: elements, Found: func(e nfnl.Element) {
			if want, ok := set.elems[set.key(e)]; ok && want == e.Data {
				right++
			}
		}}
		questions = append(questions, q)
		checks = append(checks, func() error {
			switch {
			case !wanted && errors.Is(q.Err, os.ErrNotExist):
				return nil
			case q.Err != nil:
				return fmt.Errorf("read elements of set %s: %w", set.def.Name, q.Err)
			case !wanted:
				return fmt.Errorf("set %s still has %s", set.def.Name, table.KeyText(set.def.Key, elements[0].Key))
			case right < len(elements):
				return fmt.Errorf("set %s lacks %d of the elements that were written", set.def.Name, len(elements)-right)
			}
			return nil
		})
		return nil
	}
	for _, set := range sets {
		var wanted []nfnl.Element
		for key := range set.was {
			raw := set.raw(key, "")
			if _, ok := set.elems[key]; ok {
				wanted = append(wanted, raw)
			} else if err := ask(set, []nfnl.Element{raw}, false); err != nil {
				return err
			}
		}
		for chunk := range slices.Chunk(wanted, nfnl.MaxAsked) {
			if err := ask(set, chunk, true); err != nil {
				return err
			}
		}
	}
	return finish()
}

func (d *desired) verifyWholeSet(c *nfnl.Conn, set *set) error {
	right, wrong := 0, 0
	err := c.ReadElements(&set.def, func(e nfnl.Element) {
		if want, ok := set.elems[set.key(e)]; ok && want == e.Data {
			right++
		} else {
			wrong++
		}
	})
	if err == nil && (right != len(set.elems) || wrong > 0) {
		err = fmt.Errorf("set %s has %d of the %d elements that were written, and %d others", set.def.Name, right, len(set.elems), wrong)
	}
	return err
}

// settled notes that the kernel holds what is desired.
func (d *desired) settled() {
	d.there, d.rebuild = true, false
	for name := range d.dirty {
		if c := d.chains[name]; c.render == nil {
			d.holds(c, nil)
			delete(d.chains, name)
		}
	}
	clear(d.dirty)
	for name := range d.changed {
		s := d.sets[name]
		if s == nil {
			continue
		}
		now := totals{}
		if s.wanted {
			s.there = true
			clear(s.was)
			now = totals{sets: 1, members: len(s.elems)}
		} else {
			delete(d.sets, name)
		}
		d.total.sets += now.sets - s.total.sets
		d.total.members += now.members - s.total.members
		s.total = now
	}
	clear(d.changed)
}

// observe reads everything and notes what the kernel holds. What it holds
// besides becomes something to remove. Differences from what was known are counted as repairs,
// also where an error follows: what was noted until then is known to the next try.
func (f *Firewall) observe(r *Report) error {
	t, err := f.conn.ReadTable()
	if err != nil {
		return err
	}
	d := f.desired
	repairs := 0
	defer func() {
		if f.started {
			r.Repairs += repairs
		}
	}()
	if !f.started {
		d.keepTranslating(t)
	}
	d.there = t.There
	d.rebuild = t.There && (f.remake || d.unfit(t))
	if d.rebuild {
		t, d.there = nfnl.Contents{}, false
		repairs++
	}
	if t.There && !d.rebuild && !f.started {
		if err := f.adopt(t); err != nil {
			return err
		}
	}
	for name, c := range d.chains {
		_, there := t.Chains[name]
		if d.observeChain(name, c, there, t.Rules[name]) {
			repairs++
		}
	}
	for name := range t.Chains {
		if d.chains[name] == nil {
			d.chains[name] = &chain{there: true}
			d.holds(d.chains[name], t.Rules[name])
			d.dirty[name] = true
			repairs++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.sets)) {
		_, there := t.Sets[name]
		n, err := d.observeSet(f.conn, d.sets[name], there)
		if err != nil {
			return err
		}
		repairs += n
	}
	for name := range t.Sets {
		if d.sets[name] == nil {
			d.sets[name] = &set{def: table.Set{Name: name}, there: true}
			d.changed[name] = true
			repairs++
		}
	}
	return nil
}

// unfit says whether a part of the table is of another make, so that all of it
// must be made anew.
func (d *desired) unfit(t nfnl.Contents) bool {
	if t.Foreign { // it is dormant, or has what we don't make
		return true
	}
	hooks := make(map[string]nfnl.Hook)
	for _, c := range d.renderer().Everything() {
		hooks[c.Name] = nfnl.HookOf(c.Hook)
	}
	for name, at := range t.Chains {
		if d.chains[name] != nil && at != hooks[name] {
			return true
		}
	}
	for name, kind := range t.Sets {
		if s := d.sets[name]; s != nil && nfnl.ShapeOf(&s.def) != kind {
			return true
		}
	}
	return false
}

// observeChain notes what the kernel holds of a chain and reports whether it
// isn't what was known.
func (d *desired) observeChain(name string, c *chain, there bool, rules []nfnl.Installed) bool {
	if c.there == there && slices.Equal(c.have, rules) {
		return false
	}
	known := c.there || c.have != nil
	if known && there {
		// A rule that was known by another handle has been put in anew, by
		// somebody else: whatever it says of itself, it isn't ours.
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
	d.holds(c, rules)
	d.dirty[name] = true
	return known || there
}

// observeSet does the same for a set, and counts the elements that differ. Where it can't be read
// nothing is noted.
func (d *desired) observeSet(c *nfnl.Conn, set *set, there bool) (int, error) {
	known := make(map[string]held, len(set.was))
	maps.Copy(known, set.was)
	was := set.there
	set.there = there
	if !there {
		clear(set.was)
		if was || len(set.elems) > 0 {
			d.changed[set.def.Name] = true
		}
		if was {
			return 1, nil
		}
		return 0, nil
	}
	if !was {
		d.changed[set.def.Name] = true
	}
	clear(set.was)
	n, right := 0, 0
	foreign := func(key string, now held) {
		before, noted := known[key]
		if !noted {
			before.data, before.there = set.elems[key]
		}
		if was && before != now {
			n++
		}
	}
	err := c.ReadElements(&set.def, func(e nfnl.Element) {
		key, now := set.key(e), held{true, e.Data}
		if want, ok := set.elems[key]; ok && want == e.Data {
			right++
		} else {
			set.was[key] = now
		}
		foreign(key, now)
	})
	if err == nil && right != len(set.elems) {
		err = missing(c, set, foreign)
	}
	if err != nil {
		set.there, set.was = was, known
		return 0, err
	}
	if len(set.was) > 0 {
		d.changed[set.def.Name] = true
	}
	return n, nil
}

// missing notes the elements that the kernel lacks.
func missing(c *nfnl.Conn, set *set, foreign func(key string, now held)) error {
	there := make(map[string]struct{}, len(set.elems))
	if err := c.ReadElements(&set.def, func(e nfnl.Element) { there[set.key(e)] = struct{}{} }); err != nil {
		return err
	}
	for key := range set.elems {
		if _, ok := there[key]; !ok {
			set.was[key] = held{}
			foreign(key, held{})
		}
	}
	return nil
}
