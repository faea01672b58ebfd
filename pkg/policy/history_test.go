// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/model"
)

// rig runs an engine beside the snapshot that it should have understood.
type rig struct {
	engine *Engine
	slow   slow
	state  State
}

func newRig() *rig {
	return &rig{engine: NewEngine("h1"), slow: slow{host: "h1", entries: map[string]model.Entry{}}}
}

func (r *rig) update(e model.Entry) {
	r.engine.Update(e)
	if e.Exists() {
		r.slow.entries[e.Path] = e
	} else {
		delete(r.slow.entries, e.Path)
	}
}

func (r *rig) setInterfaces(i []Interface) {
	r.engine.SetInterfaces(i)
	r.slow.interfaces = i
}

func (r *rig) setPrefixes(p []string) {
	r.engine.SetPrefixes(p)
	r.slow.prefixes = p
}

// same compares what is told so far with what follows from the snapshot.
func (r *rig) same() error {
	c := r.engine.Flush()
	for id, s := range c.Sets {
		if !s.New && !s.Gone && len(s.Added)+len(s.Removed) == 0 && slices.Equal(s.Nets, r.state.Sets[id].Nets) {
			return fmt.Errorf("set %s is told without a change", id)
		}
	}
	if err := r.state.Apply(c); err != nil {
		return err
	}
	if diff := diffStates(r.slow.compute(), &r.state); diff != "" {
		return errors.New(diff)
	}
	if diff := cmp.Diff(r.slow.invalid(), slices.Sorted(maps.Keys(r.engine.Invalid())), cmpopts.EquateEmpty()); diff != "" {
		return errors.New("invalid:\n" + diff)
	}
	if again := r.engine.Flush(); !again.Empty() {
		return fmt.Errorf("a second Flush tells %+v", again)
	}
	return nil
}

// empty deletes everything; then nothing may be left of it.
func (r *rig) empty() error {
	for _, e := range r.slow.entries {
		e.Value, e.Err, e.Revision, e.Created = nil, nil, 0, 0
		r.update(e)
	}
	if err := r.same(); err != nil {
		return err
	}
	e, x, ls := r.engine, r.engine.index, r.engine.locals
	for what, n := range map[string]int{
		"endpoints": len(x.endpoints), "owners": len(x.owners), "profiles": len(x.profiles), "missing profiles": len(x.missing), "tiers": len(e.policies.tiers),
		"selectors": len(e.policies.selectors), "locals": len(ls.byPath), "claims": ls.owners.Len(), "rules": len(e.rules.used), "sets": len(e.sets.byID),
		"pools": len(e.pools.byCIDR), "profile labels": len(x.profileIndex.labels), "profile tags": len(x.profileIndex.tags),
		"entries": len(e.spellings.entries), "odd spellings": len(e.spellings.odd), "invalid": len(e.invalid),
	} {
		if n > 0 {
			return fmt.Errorf("%d %s are left", n, what)
		}
	}
	for _, m := range []*matcher{x.all, x.own} {
		if n := len(m.endpoints) + len(m.labels) + len(m.ports) + len(m.byLabel) + len(m.anything) + len(m.byTag) + len(m.byPort) + m.queries; n > 0 {
			return fmt.Errorf("%d are left in an index: %+v", n, m)
		}
	}
	return nil
}

func diffStates(want, got *State) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

// play lets pick choose a history.
func play(pick func(int) int, steps int) error {
	w := world{pick}
	r := newRig()
	for range steps {
		switch w.pick(24) {
		case 0:
			r.setInterfaces(w.interfaces())
		case 1:
			r.setPrefixes(one(w, nil, []string{"cali"}, []string{"cali", "tap"}))
		case 2, 3, 4, 5:
			if err := r.same(); err != nil {
				return err
			}
		case 6, 7, 8, 9, 10:
			if paths := slices.Sorted(maps.Keys(r.slow.entries)); len(paths) > 0 {
				r.update(w.edit(r.slow.entries[one(w, paths...)]))
			}
		default:
			r.update(w.entry())
		}
	}
	if err := r.same(); err != nil {
		return err
	}
	return replay(w, r)
}

// replay tells other engines the same in other orders.
func replay(w world, r *rig) error {
	paths := slices.Sorted(maps.Keys(r.slow.entries))
	reversed := slices.Clone(paths)
	slices.Reverse(reversed)
	shuffled := slices.Concat(paths, paths)
	for i := range shuffled {
		j := i + w.pick(len(shuffled)-i)
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	}
	for name, order := range map[string][]string{"sorted": paths, "reversed": reversed, "shuffled, twice each": shuffled} {
		o := newRig()
		for range 5 { // what was there before and is gone; deletes of what never was
			e := w.entry()
			e.Value, e.Err, e.Revision, e.Created = nil, nil, 0, 0
			o.update(e)
			e = w.entry()
			o.update(e)
			if w.pick(2) == 0 {
				o.state.Apply(o.engine.Flush())
			}
			if _, stays := r.slow.entries[e.Path]; !stays {
				e.Value, e.Err, e.Revision, e.Created = nil, nil, 0, 0
				o.update(e)
			}
		}
		for i, path := range order {
			if i == len(order)/2 {
				o.setInterfaces(r.slow.interfaces)
			}
			o.update(r.slow.entries[path])
			if w.pick(4) == 0 {
				if err := o.state.Apply(o.engine.Flush()); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		o.setInterfaces(r.slow.interfaces)
		o.setPrefixes(r.slow.prefixes)
		if err := o.same(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if diff := diffStates(&r.state, &o.state); diff != "" {
			return fmt.Errorf("%s:\n%s", name, diff)
		}
		if err := o.empty(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func TestHistories(t *testing.T) {
	n := uint64(300)
	if testing.Short() {
		n = 30
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(seed, 7))
		if err := play(r.IntN, 20+r.IntN(120)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzHistories lets the fuzzer choose histories.
func FuzzHistories(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 8))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		pick := func(n int) int {
			if at == len(data) {
				return 0
			}
			at++
			return int(data[at-1]) % n
		}
		if err := play(pick, min(len(data)/8, 60)); err != nil {
			t.Fatal(err)
		}
	})
}
