// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Release frees every address of the handle, and deletes the handle. One that
// doesn't exist, as somebody has deleted it, or that isn't valid has what is its
// in the blocks that were read, and in those of also; without any it is left alone.
//
// A block that becomes empty and has affinity to a host stays that host's, with
// the time; another host may take it over later. It is given back, that is
// deleted, if nobody has affinity to it, or if nothing may be allocated from it
// any more because its pool is gone, disabled or has another block size now.
// Blocks that a person made (strict affinity, or auto_allocate_blocks is
// false) are never deleted.
//
// Errors: *NeedError; *InvalidError, and then nothing is freed.
func (p *Plan) Release(handle string, now time.Time, also ...netip.Prefix) ([]netip.Addr, error) {
	n := &needs{v: p.view}
	if !n.addAll(FirstReadRelease(handle)) {
		return nil, n.err()
	}
	h := p.anyHandle(handle)
	blocks := h.with(append(p.naming(handle), also...))
	for _, c := range blocks {
		n.block(c)
	}
	if err := n.err(); err != nil {
		return nil, err
	}
	for _, c := range blocks {
		if _, err := p.peek(c); err != nil {
			return nil, err
		}
	}
	if len(blocks) > 0 {
		h.invalid = nil // it goes with what is found
	}
	var freed []netip.Addr
	for _, c := range blocks {
		if !p.exists(c) {
			// Some other tool deleted it: the addresses are gone with it.
			p.compares[model.BlockKey{CIDR: c}] = 0
			h.changed = true
			delete(h.blocks, c)
			continue
		}
		d, settle := p.edit(c), false
		for _, o := range heldBy(&d.Block, handle) {
			freed = append(freed, addrOf(&d.Block, o))
			put(&d.Block, o)
			settle = true
		}
		if settle {
			p.settle(d, now)
		}
		p.recount(handle, d)
	}
	return freed, nil
}

// ReleaseAddr frees one address, whoever has it. It reports whether it was
// allocated, and to which handle. The caller answers for the endpoint that may
// still have the address.
//
// Errors: as Release.
func (p *Plan) ReleaseAddr(addr netip.Addr, now time.Time) (handle string, freed bool, err error) {
	b, o, err := p.find(addr)
	if b == nil || err != nil {
		return "", false, err
	}
	n := &needs{v: p.view}
	handle = holder(b, o).HandleID
	if handle != "" {
		if !n.addAll(handleWants(handle)) {
			return "", false, n.err()
		}
		if _, err := p.handle(handle); err != nil {
			return "", false, err
		}
	}
	d := p.edit(b.CIDR)
	put(&d.Block, o)
	p.settle(d, now)
	if handle != "" {
		p.recount(handle, d)
	}
	return handle, true, nil
}

// Holder is the handle that has an address, "" = none.
//
// Errors: as Release.
func (p *Plan) Holder(addr netip.Addr) (handle string, err error) {
	b, o, err := p.find(addr)
	if b == nil || err != nil {
		return "", err
	}
	return holder(b, o).HandleID, nil
}

// BlocksOf are the blocks in which one of the addresses is allocated to the handle, whether or not
// that names them.
//
// Errors: as Release.
func (p *Plan) BlocksOf(handle string, addrs []netip.Addr) ([]netip.Prefix, error) {
	needed, found := &NeedError{}, []netip.Prefix{}
	for _, addr := range addrs {
		b, o, err := p.find(addr)
		need, more := errors.AsType[*NeedError](err)
		switch {
		case more:
			needed.Wants = append(needed.Wants, need.Wants...)
		case err != nil:
			return nil, err
		case b != nil && holder(b, o).HandleID == handle && !slices.Contains(found, b.CIDR):
			found = append(found, b.CIDR)
		}
	}
	if len(needed.Wants) > 0 {
		return nil, needed
	}
	return found, nil
}

// ReadOwn has the host's own blocks be read where the handle isn't valid and nothing of it was found yet.
//
// Errors: as Release.
func (p *Plan) ReadOwn(handle, host string) error {
	n := &needs{v: p.view}
	if p.anyHandle(handle).invalid == nil || !n.add(Want{Prefix: model.AffinityPrefix(host), KeysOnly: true}) {
		return n.err()
	}
	for _, a := range p.view.affinities(host) {
		n.block(a.cidr)
	}
	return n.err()
}

// naming are the blocks that were read and have addresses of the handle, whether or not it names them.
func (p *Plan) naming(handle string) (blocks []netip.Prefix) {
	for c, b := range p.view.blocks {
		m, _ := b.entry.Value.(model.Block)
		if !slices.ContainsFunc(m.Attributes, func(a model.Attributes) bool { return a.HandleID == handle }) {
			continue
		}
		if m, err := p.peek(c); err == nil && m != nil && len(heldBy(m, handle)) > 0 {
			blocks = append(blocks, c)
		}
	}
	slices.SortFunc(blocks, netip.Prefix.Compare)
	return blocks
}

// find is the block in which an address is allocated, and where; nil = it isn't.
func (p *Plan) find(addr netip.Addr) (*model.Block, int, error) {
	n := &needs{v: p.view}
	n.addAll([]Want{{Prefix: model.PoolPrefix()}, {Key: model.IPAMConfigKey{}}})
	addr = addr.Unmap()
	if !addr.IsValid() || addr.Zone() != "" {
		return nil, 0, &UnavailableError{addr, "not an address that a workload may have"}
	}
	c, _ := p.holding(n, addr)
	if err := n.err(); err != nil {
		return nil, 0, err
	}
	if !c.IsValid() {
		return nil, 0, nil
	}
	b, err := p.peek(c)
	if err != nil {
		return nil, 0, err
	}
	o := ordinalOf(b, addr)
	if b.Allocations[o] == model.Free {
		return nil, 0, nil
	}
	return b, o, nil
}

// settle finishes a block from which addresses were freed.
func (p *Plan) settle(d *draft, now time.Time) {
	compact(&d.Block)
	if !isEmpty(&d.Block) {
		return
	}
	if p.wanted(&d.Block) {
		d.EmptySince = now.UTC()
	} else {
		p.remove(d)
	}
}

// wanted reports whether an empty block is worth keeping.
func (p *Plan) wanted(b *model.Block) bool {
	config, err := p.view.ipamConfig()
	if err != nil || !config.AutoAllocateBlocks || b.StrictAffinity {
		return true
	}
	if b.Affinity == "" {
		return false
	}
	pool := p.view.poolOf(b.CIDR)
	if pool == nil {
		return false
	}
	return pool.err != nil || pool.IPAM && !pool.Disabled && pool.BlockSize == b.CIDR.Bits()
}

// Held are the addresses of a handle as the view has them, those too that it doesn't name, as
// somebody has deleted it.
//
// Errors: as Release, and *InvalidError where the handle isn't valid.
func (v *View) Held(handle string) ([]Assigned, error) {
	p := NewPlan(v)
	n := &needs{v: v}
	if !n.addAll(FirstReadRelease(handle)) {
		return nil, n.err()
	}
	h, err := p.handle(handle)
	if err != nil {
		return nil, err
	}
	blocks := h.with(p.naming(handle))
	for _, c := range blocks {
		n.block(c)
	}
	if err := n.err(); err != nil {
		return nil, err
	}
	var out []Assigned
	for _, c := range blocks {
		b, err := p.peek(c)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		got := Assigned{Block: c, Existing: true}
		if pool := v.poolOf(c); pool != nil {
			got.Pool = pool.CIDR
		}
		for _, o := range heldBy(b, handle) {
			got.Addr, got.Attributes = addrOf(b, o), holder(b, o).Secondary
			out = append(out, got)
		}
	}
	return out, nil
}

// Restore has the handle name the blocks of what it holds.
//
// Errors: as Held.
func (p *Plan) Restore(handle string, held []Assigned) error {
	h, err := p.handle(handle)
	if err != nil {
		return err
	}
	for _, a := range held {
		if h.blocks[a.Block] > 0 {
			continue
		}
		b, err := p.peek(a.Block)
		if err != nil {
			return err
		}
		h.blocks[a.Block], h.changed = len(heldBy(b, handle)), true
		if p.blocks[a.Block] == nil {
			p.compares[model.BlockKey{CIDR: a.Block}] = p.view.blocks[a.Block].entry.Revision
		}
	}
	return nil
}
