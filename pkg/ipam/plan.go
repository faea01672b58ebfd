// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Plan gathers what several operations on one view write, as one change. Each
// sees what those before it did. An operation that returns an error has done
// nothing.
type Plan struct {
	*index
	drafts     map[netip.Prefix]*draft
	handles    map[string]*draftHandle
	affinities map[model.AffinityKey]bool // written: present or not
	compares   map[model.Key]int64        // besides those of what is written
}

// draft is a block as the plan leaves it.
type draft struct {
	model.Block
	base int64 // the revision that it was read at, 0: it didn't exist
	gone bool
}

// draftHandle is a handle as the plan leaves it.
type draftHandle struct {
	blocks            map[netip.Prefix]int
	canonical, legacy int64 // the revisions of its two places
	invalid           error // of one of them
	changed           bool
}

// NewPlan returns a plan that does nothing yet.
func NewPlan(v *model.View) *Plan {
	return &Plan{
		index:      newIndex(v),
		drafts:     map[netip.Prefix]*draft{},
		handles:    map[string]*draftHandle{},
		affinities: map[model.AffinityKey]bool{},
		compares:   map[model.Key]int64{},
	}
}

// Change is what all operations of the plan write, on condition that nothing
// that they depend on has changed. It has compares even where it writes
// nothing: what was found to be allocated is still allocated.
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

// exists reports whether there is such a block, valid or not, as far as is known.
func (p *Plan) exists(c netip.Prefix) bool {
	if d := p.drafts[c]; d != nil {
		return !d.gone
	}
	_, ok := p.blocks[c]
	return ok
}

// peek is index.block as the plan leaves it.
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

// edit is a block for changing. It must exist and be valid.
func (p *Plan) edit(c netip.Prefix) *draft {
	d := p.drafts[c]
	if d == nil {
		e := p.blocks[c].entry
		d = &draft{Block: clone(e.Value.(model.Block)), base: e.Revision}
		p.drafts[c] = d
	}
	return d
}

// create makes a block with affinity to the host. It must not exist.
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

// remove deletes a block and its owner's affinity.
func (p *Plan) remove(d *draft) {
	d.gone = true
	if d.Affinity != "" {
		p.affinities[model.AffinityKey{Host: d.Affinity, CIDR: d.CIDR}] = false
	}
}

// giveTo makes a block the host's own.
func (p *Plan) giveTo(d *draft, host string) {
	if d.Affinity != "" && d.Affinity != host {
		p.affinities[model.AffinityKey{Host: d.Affinity, CIDR: d.CIDR}] = false
	}
	d.Affinity = host
	p.affinities[model.AffinityKey{Host: host, CIDR: d.CIDR}] = true
}

// handle is what the handle holds, for looking and for changing: from here on
// the plan depends on it. Both its places must be known.
func (p *Plan) handle(id string) *draftHandle {
	if h := p.handles[id]; h != nil {
		return h
	}
	h := &draftHandle{blocks: map[netip.Prefix]int{}}
	// Where both places exist, the canonical one is right on each block.
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

// valid is handle, or why it is not valid: that the plan doesn't depend on.
func (p *Plan) valid(id string) (*draftHandle, error) {
	h := p.handle(id)
	if h.invalid != nil {
		delete(p.handles, id)
		return nil, h.invalid
	}
	return h, nil
}

// recount makes the handle's count of a block what the block says.
func (p *Plan) recount(id string, d *draft) {
	h := p.handles[id]
	h.changed = true
	if n := len(heldBy(&d.Block, id)); n > 0 && !d.gone {
		h.blocks[d.CIDR] = n
	} else {
		delete(h.blocks, d.CIDR)
	}
}

// sorted is what the handle names, in order.
func (h *draftHandle) sorted() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(h.blocks), netip.Prefix.Compare)
}
