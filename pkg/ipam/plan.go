// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Plan collects the writes of several operations on one view into a single change. Each operation sees the effects of
// those before it. An operation that returns an error has no effect.
type Plan struct {
	*index
	drafts     map[netip.Prefix]*draft
	handles    map[string]*draftHandle
	affinities map[model.AffinityKey]bool // written: whether the key will exist
	compares   map[model.Key]int64        // in addition to those of the keys written
}

// draft is the new state of a block.
type draft struct {
	model.Block
	base int64 // the revision at which it was read; 0 if it didn't exist
	gone bool
}

// draftHandle is the new state of a handle.
type draftHandle struct {
	blocks            map[netip.Prefix]int
	canonical, legacy int64 // revisions of its two keys
	invalid           error // error of one of them
	changed           bool
}

// NewPlan returns an empty plan.
func NewPlan(v *model.View) *Plan {
	return &Plan{
		index:      newIndex(v),
		drafts:     map[netip.Prefix]*draft{},
		handles:    map[string]*draftHandle{},
		affinities: map[model.AffinityKey]bool{},
		compares:   map[model.Key]int64{},
	}
}

// Change returns the writes of all operations of the plan, on condition that nothing they depend on has changed. It has
// compares even if there is nothing to write: they make sure that addresses found allocated are still allocated.
func (p *Plan) Change() model.Change {
	var c model.Change
	compare := func(k model.Key, revision int64) {
		c.Compares = append(c.Compares, model.Compare{Key: k, Revision: revision})
	}
	for k, revision := range p.compares {
		compare(k, revision)
	}
	for cidr, d := range p.drafts {
		k := model.BlockKey{CIDR: cidr}
		compare(k, d.base)
		if !d.gone {
			c.Puts = append(c.Puts, model.Put{Key: k, Value: d.Block})
		} else if d.base != 0 {
			c.Deletes = append(c.Deletes, k)
		}
	}
	for id, h := range p.handles {
		k, old := model.HandleKey{ID: id}, model.HandleKey{ID: id, Legacy: true}
		compare(k, h.canonical)
		if h.legacy != 0 {
			compare(old, h.legacy)
		}
		if !h.changed {
			continue
		}
		if h.legacy != 0 {
			c.Deletes = append(c.Deletes, old)
		}
		if len(h.blocks) > 0 {
			c.Puts = append(c.Puts, model.Put{Key: k, Value: model.Handle{ID: id, Blocks: h.blocks}})
		} else if h.canonical != 0 {
			c.Deletes = append(c.Deletes, k)
		}
	}
	for k, present := range p.affinities {
		if present {
			c.Puts = append(c.Puts, model.Put{Key: k, Value: model.Affinity{}})
		} else {
			c.Deletes = append(c.Deletes, k)
		}
	}
	slices.SortFunc(c.Compares, func(a, b model.Compare) int { return cmp.Compare(a.Key.Path(), b.Key.Path()) })
	slices.SortFunc(c.Puts, func(a, b model.Put) int { return cmp.Compare(a.Key.Path(), b.Key.Path()) })
	slices.SortFunc(c.Deletes, func(a, b model.Key) int { return cmp.Compare(a.Path(), b.Path()) })
	return c
}

// exists reports whether the block is known to exist, valid or not.
func (p *Plan) exists(c netip.Prefix) bool {
	if d := p.drafts[c]; d != nil {
		return !d.gone
	}
	_, ok := p.blocks[c]
	return ok
}

// peek is like index.block, with the changes of the plan.
func (p *Plan) peek(c netip.Prefix) (*model.Block, error) {
	switch d := p.drafts[c]; {
	case d == nil:
		return p.index.block(c)
	case d.gone:
		return nil, nil
	default:
		return &d.Block, nil
	}
}

// edit returns a block for changing. It must exist and be valid.
func (p *Plan) edit(c netip.Prefix) *draft {
	d := p.drafts[c]
	if d == nil {
		e := p.blocks[c].entry
		d = &draft{Block: clone(e.Value.(model.Block)), base: e.Revision}
		p.drafts[c] = d
	}
	return d
}

// create makes a block with affinity to the host. The block must not exist.
func (p *Plan) create(c netip.Prefix, host string) *draft {
	d := p.drafts[c]
	if d == nil {
		d = &draft{}
		p.drafts[c] = d
	}
	d.Block, d.gone = newBlock(c, host), false
	p.affinities[model.AffinityKey{Host: host, CIDR: c}] = true
	return d
}

// remove deletes a block and its host's affinity.
func (p *Plan) remove(d *draft) {
	d.gone = true
	if d.Affinity != "" {
		p.affinities[model.AffinityKey{Host: d.Affinity, CIDR: d.CIDR}] = false
	}
}

// giveTo transfers a block's affinity to the host.
func (p *Plan) giveTo(d *draft, host string) {
	if d.Affinity != "" && d.Affinity != host {
		p.affinities[model.AffinityKey{Host: d.Affinity, CIDR: d.CIDR}] = false
	}
	d.Affinity = host
	p.affinities[model.AffinityKey{Host: host, CIDR: d.CIDR}] = true
}

// handle returns the content of a handle, for reading and changing. From then on the plan depends on it. Both its keys
// must be known.
func (p *Plan) handle(id string) *draftHandle {
	if h := p.handles[id]; h != nil {
		return h
	}
	h := &draftHandle{blocks: map[netip.Prefix]int{}}
	// If both keys exist, the canonical one takes precedence per block.
	for _, k := range []model.HandleKey{{ID: id, Legacy: true}, {ID: id}} {
		e := canonical(p.view.Get(k))
		if e.Err != nil {
			h.invalid = &InvalidError{Path: k.Path(), Err: e.Err}
		}
		if k.Legacy {
			h.legacy = e.Revision
		} else {
			h.canonical = e.Revision
		}
		m, _ := e.Value.(model.Handle)
		for c, n := range m.Blocks {
			if n > 0 {
				h.blocks[c] = n
			}
		}
	}
	p.handles[id] = h
	return h
}

// valid is like handle but returns an error for an invalid handle, and then the plan does not depend on it.
func (p *Plan) valid(id string) (*draftHandle, error) {
	h := p.handle(id)
	if h.invalid != nil {
		delete(p.handles, id)
		return nil, h.invalid
	}
	return h, nil
}

// recount sets the handle's count for a block to what the block says.
func (p *Plan) recount(id string, d *draft) {
	h := p.handles[id]
	h.changed = true
	if n := len(heldBy(&d.Block, id)); n > 0 && !d.gone {
		h.blocks[d.CIDR] = n
	} else {
		delete(h.blocks, d.CIDR)
	}
}

// sorted returns the blocks that the handle names, in order.
func (h *draftHandle) sorted() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(h.blocks), netip.Prefix.Compare)
}
