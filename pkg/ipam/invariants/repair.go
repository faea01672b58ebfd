// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Repair is a violation and the change that repairs it. If Change is empty and Before false, a person must repair it.
type Repair struct {
	Violation
	Change model.Change
	// Before says that the change of an earlier Repair fixes this violation too.
	Before bool
}

// ByHand says how a person can repair it.
func (r Repair) ByHand() string {
	return [...]string{
		0: "can't be read: correct the value, or delete the key",
		1: "delete the pool that was added last, or the block that no address is allocated from",
		2: "correct the block that can't be read first",
		3: "correct the block that can't be read first",
		4: "correct allocations and unallocated in the block's value",
		5: "delete the workload, so that it starts anew with an address of its own",
	}[r.Invariant]
}

// Repairs finds every violation in the entries of a view, and repairs that neither free nor assign an address: they
// create or delete a host's affinity key, or recount a handle. Each change compares everything it relies on.
func Repairs(v *model.View, dump []model.Entry) []Repair {
	r := repairer{view: v, counts: map[string]map[netip.Prefix]int{}, readable: true}
	for _, e := range dump {
		if _, ok := e.Key.(model.BlockKey); !ok || !e.Exists() {
			continue
		}
		b, ok := e.Value.(model.Block)
		r.readable = r.readable && ok
		for _, n := range b.Allocations {
			if n == model.Free {
				continue
			}
			id := b.Attributes[n].HandleID
			if r.counts[id] == nil {
				r.counts[id] = map[netip.Prefix]int{}
			}
			r.counts[id][b.CIDR]++
		}
	}
	var all []Repair
	mended := map[string]bool{} // by handle: one may be violated in several blocks
	for _, of := range Check(dump) {
		repair := Repair{Violation: of}
		switch k := of.Key.(type) {
		case model.BlockKey:
			if of.Invariant == 2 {
				repair.Change = r.makeAffinity(k)
			} else if of.Invariant == 3 {
				repair.Change = r.makeHandles(k, mended)
				repair.Before = r.readable && repair.Change.Empty()
			}
		case model.AffinityKey:
			repair.Change = r.deleteAffinity(k)
		case model.HandleKey:
			if repair.Before = mended[k.ID]; !repair.Before { // a handle that can't be read counts nothing
				repair.Change = r.recount(k.ID)
				mended[k.ID] = !repair.Change.Empty()
			}
		}
		all = append(all, repair)
	}
	return all
}

type repairer struct {
	view   *model.View
	counts map[string]map[netip.Prefix]int // by handle: how many of its addresses each block has
	// readable says that all blocks can be read. Otherwise an unreadable one may have addresses of any handle.
	readable bool
}

// compares returns compares that the keys are unchanged since they were read.
func (r *repairer) compares(keys ...model.Key) (all []model.Compare) {
	for _, k := range keys {
		all = append(all, r.view.Compare(k))
	}
	return all
}

func (r *repairer) makeAffinity(k model.BlockKey) model.Change {
	b, _ := r.view.Get(k).Value.(model.Block)
	affinity := model.AffinityKey{Host: b.Affinity, CIDR: k.CIDR}
	return model.Change{Compares: r.compares(k, affinity), Puts: []model.Put{{Key: affinity, Value: model.Affinity{}}}}
}

func (r *repairer) deleteAffinity(k model.AffinityKey) model.Change {
	block := model.BlockKey{CIDR: k.CIDR}
	if r.view.Get(block).Err != nil {
		return model.Change{} // its affinity can't be known
	}
	return model.Change{Compares: r.compares(k, block), Deletes: []model.Key{k}}
}

// makeHandles creates the handles that a block names and that don't exist.
func (r *repairer) makeHandles(k model.BlockKey, mended map[string]bool) model.Change {
	b, _ := r.view.Get(k).Value.(model.Block)
	var change model.Change
	for _, a := range b.Attributes {
		id := a.HandleID
		if id == "" || mended[id] || r.view.Get(model.HandleKey{ID: id}).Exists() || r.view.Get(model.HandleKey{ID: id, Legacy: true}).Exists() {
			continue
		}
		mended[id] = true
		change.Merge(r.recount(id))
	}
	slices.SortFunc(change.Compares, func(a, b model.Compare) int { return cmp.Compare(a.Key.Path(), b.Key.Path()) })
	change.Compares = slices.Compact(change.Compares) // drop the repeated compares of the block itself
	return change
}

// recount makes a handle's counts agree with the blocks.
func (r *repairer) recount(id string) model.Change {
	if !r.readable {
		return model.Change{}
	}
	key, old := model.HandleKey{ID: id}, model.HandleKey{ID: id, Legacy: true}
	blocks := map[netip.Prefix]bool{}
	for c := range r.counts[id] {
		blocks[c] = true
	}
	for _, k := range []model.Key{key, old} {
		h, _ := r.view.Get(k).Value.(model.Handle)
		for c := range h.Blocks {
			blocks[c] = true
		}
	}
	change := model.Change{Compares: r.compares(key, old)}
	for c := range blocks {
		change.Compares = append(change.Compares, r.view.Compare(model.BlockKey{CIDR: c}))
	}
	if r.view.Get(old).Exists() {
		change.Deletes = append(change.Deletes, old)
	}
	if len(r.counts[id]) > 0 {
		change.Puts = []model.Put{{Key: key, Value: model.Handle{ID: id, Blocks: r.counts[id]}}}
	} else if r.view.Get(key).Exists() {
		change.Deletes = append(change.Deletes, key)
	}
	return change
}
