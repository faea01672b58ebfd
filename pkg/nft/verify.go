// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// maxFind is how many elements of a set are read back one by one; more are read
// with all others in one dump.
const maxFind = 4 * maxElements

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
			if i < len(c.have) && c.have[i].handle == r.handle {
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
		} else if err := d.verifyWholeSet(f.sock, set); err != nil {
			return err
		}
	}
	if err := d.verifyEmpty(f.sock, empty); err != nil {
		return err
	}
	return verifyElements(f.sock, some)
}

// manyEmpty is of how many sets to list all takes less than to ask for the elements of each:
// the kernel goes through all sets for one, several times.
const manyEmpty = 32

// verifyEmpty reads back sets that were made without elements.
func (d *desired) verifyEmpty(s *socket, sets []*set) error {
	if len(sets) <= manyEmpty {
		for _, set := range sets {
			if err := d.verifyWholeSet(s, set); err != nil {
				return err
			}
		}
		return nil
	}
	there, err := s.readSets()
	if err != nil {
		return err
	}
	for _, set := range sets {
		if kind, ok := there[set.def.Name]; !ok || kind != shapeOf(&set.def) {
			return fmt.Errorf("set %s is not there as it was written", set.def.Name)
		}
	}
	return nil
}

// verifyElements reads back the elements of sets that changed, many at once.
func verifyElements(s *socket, sets []*set) error {
	var requests []*request
	var checks []func() error
	asked := 0
	finish := func() error {
		if asked == 0 {
			return nil
		}
		if err := s.exchange(requests); err != nil {
			return fmt.Errorf("read elements of sets: %w", err)
		}
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		requests, checks, asked = nil, nil, 0
		return nil
	}
	ask := func(set *set, elements []rawElement, wanted bool) error {
		if asked+len(elements) > maxAsked {
			if err := finish(); err != nil {
				return err
			}
		}
		asked += len(elements)
		right := 0
		r := find(&set.def, elements, func(key, data string) {
			if want, ok := set.elems[key]; ok && want == data {
				right++
			}
		})
		requests = append(requests, r)
		checks = append(checks, func() error {
			switch {
			case !wanted && errors.Is(r.err, unix.ENOENT):
				return nil
			case r.err != nil:
				return fmt.Errorf("read elements of set %s: %w", set.def.Name, r.err)
			case !wanted:
				return fmt.Errorf("set %s still has %s", set.def.Name, table.KeyText(set.def.Key, elements[0].key))
			case right < len(elements):
				return fmt.Errorf("set %s lacks %d of the elements that were written", set.def.Name, len(elements)-right)
			}
			return nil
		})
		return nil
	}
	for _, set := range sets {
		var wanted []rawElement
		for key := range set.was {
			raw := rawOf(&set.def, key, "")
			if _, ok := set.elems[key]; ok {
				wanted = append(wanted, raw)
			} else if err := ask(set, []rawElement{raw}, false); err != nil {
				return err
			}
		}
		for chunk := range slices.Chunk(wanted, maxAsked) {
			if err := ask(set, chunk, true); err != nil {
				return err
			}
		}
	}
	return finish()
}

func (d *desired) verifyWholeSet(s *socket, set *set) error {
	right, wrong := 0, 0
	err := s.readElements(&set.def, func(key, data string) {
		if want, ok := set.elems[key]; ok && want == data {
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
	t, err := f.sock.readTable()
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
	d.there = t.there
	d.rebuild = t.there && (f.remake || d.unfit(t))
	if d.rebuild {
		t, d.there = contents{}, false
		repairs++
	}
	if t.there && !d.rebuild && !f.started {
		if err := f.adopt(t); err != nil {
			return err
		}
	}
	for name, c := range d.chains {
		_, there := t.chains[name]
		if d.observeChain(name, c, there, t.rules[name]) {
			repairs++
		}
	}
	for name := range t.chains {
		if d.chains[name] == nil {
			d.chains[name] = &chain{there: true}
			d.holds(d.chains[name], t.rules[name])
			d.dirty[name] = true
			repairs++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.sets)) {
		_, there := t.sets[name]
		n, err := d.observeSet(f.sock, d.sets[name], there)
		if err != nil {
			return err
		}
		repairs += n
	}
	for name := range t.sets {
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
func (d *desired) unfit(t contents) bool {
	if t.flags != 0 || t.others { // it is dormant, or has what we don't make
		return true
	}
	hooks := make(map[string]string)
	for _, c := range d.renderer().base(everything) {
		hooks[c.Name] = chainHook(&c)
	}
	for name, c := range t.chains {
		if d.chains[name] != nil && c.hook != hooks[name] {
			return true
		}
	}
	for name, kind := range t.sets {
		if s := d.sets[name]; s != nil && shapeOf(&s.def) != kind {
			return true
		}
	}
	return false
}

// observeChain notes what the kernel holds of a chain and reports whether it
// isn't what was known.
func (d *desired) observeChain(name string, c *chain, there bool, rules []installed) bool {
	if c.there == there && slices.Equal(c.have, rules) {
		return false
	}
	known := c.there || c.have != nil
	if known && there {
		// A rule that was known by another handle has been put in anew, by
		// somebody else: whatever it says of itself, it isn't ours.
		handles := make(map[installed]bool, len(c.have))
		for _, r := range c.have {
			handles[r] = true
		}
		for i := range rules {
			if !handles[rules[i]] {
				rules[i].hash = hash{}
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
func (d *desired) observeSet(s *socket, set *set, there bool) (int, error) {
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
	err := s.readElements(&set.def, func(key, data string) {
		now := held{true, data}
		if want, ok := set.elems[key]; ok && want == data {
			right++
		} else {
			set.was[key] = now
		}
		foreign(key, now)
	})
	if err == nil && right != len(set.elems) {
		err = s.missing(set, foreign)
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
func (s *socket) missing(set *set, foreign func(key string, now held)) error {
	there := make(map[string]struct{}, len(set.elems))
	if err := s.readElements(&set.def, func(key, _ string) { there[key] = struct{}{} }); err != nil {
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
