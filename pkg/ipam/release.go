// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Release frees every address of the handle and deletes the handle. A handle that was deleted or is invalid may not
// name all its blocks, so addresses of it in blocks that were read, or in those of also, are freed as well.
//
// A block that becomes empty and has an affinity keeps it, along with the time; another host may take it over later.
// The block is deleted instead if no host has affinity to it, or if nothing may be allocated from it any more, because
// its pool is gone, disabled, newer than one that it overlaps, for other hosts or uses, or now has another block size.
// Blocks that a person made (strict affinity, or auto_allocate_blocks is false) are never deleted.
//
// Errors: *model.NeedRangesError; *InvalidError, and then nothing is freed.
func (p *Plan) Release(handle string, now time.Time, also ...netip.Prefix) ([]netip.Addr, error) {
	n := &needs{index: p.index}
	if !n.addAll(FirstReadRelease(handle)) {
		return nil, n.err()
	}
	h := p.handle(handle)
	blocks := h.sorted()
	for _, c := range append(p.naming(handle), also...) {
		if !slices.Contains(blocks, c) {
			blocks = append(blocks, c)
		}
	}
	if h.invalid != nil && len(blocks) == 0 {
		return nil, h.invalid
	}
	for _, c := range blocks {
		n.block(c)
	}
	if err := n.err(); err != nil {
		return nil, err
	}
	for _, c := range blocks {
		b, err := p.peek(c)
		if err != nil {
			return nil, err
		}
		if b != nil {
			p.needHost(n, b, len(heldBy(b, handle)))
		}
	}
	if err := n.err(); err != nil {
		return nil, err
	}
	var freed []netip.Addr
	for _, c := range blocks {
		if !p.exists(c) {
			// Another tool deleted it; the addresses are gone with it.
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

// naming returns the blocks that were read and have addresses of the handle, whether or not the handle names them.
func (p *Plan) naming(handle string) (blocks []netip.Prefix) {
	for c, b := range p.blocks {
		m, _ := b.entry.Value.(model.Block)
		if slices.ContainsFunc(m.Attributes, func(a model.Attributes) bool { return a.HandleID == handle }) && len(heldBy(&m, handle)) > 0 {
			blocks = append(blocks, c)
		}
	}
	slices.SortFunc(blocks, netip.Prefix.Compare)
	return blocks
}

// ReleaseAddr frees one address, whichever handle has it. It reports whether the address was allocated, and to which
// handle. The caller must make sure that no endpoint still has the address.
//
// Errors: as for Release.
func (p *Plan) ReleaseAddr(addr netip.Addr, now time.Time) (handle string, freed bool, err error) {
	b, o, err := p.find(addr)
	if b == nil || err != nil {
		return "", false, err
	}
	n := &needs{index: p.index}
	handle = holder(b, o).HandleID
	if handle != "" {
		if !n.addAll(handleRanges(handle)) {
			return "", false, n.err()
		}
		if _, err := p.valid(handle); err != nil {
			return "", false, err
		}
	}
	if p.needHost(n, b, 1); n.err() != nil {
		return "", false, n.err()
	}
	d := p.edit(b.CIDR)
	put(&d.Block, o)
	p.settle(d, now)
	if handle != "" {
		p.recount(handle, d)
	}
	return handle, true, nil
}

// Holder returns the handle that has an address, "" if it was allocated without one. allocated is false if it is free.
//
// Errors: as for Release.
func (p *Plan) Holder(addr netip.Addr) (handle string, allocated bool, err error) {
	b, o, err := p.find(addr)
	if b == nil || err != nil {
		return "", false, err
	}
	return holder(b, o).HandleID, true, nil
}

// find returns the block in which an address is allocated, and its ordinal; a nil block if it isn't.
func (p *Plan) find(addr netip.Addr) (*model.Block, int, error) {
	n := &needs{index: p.index}
	n.addAll([]model.Range{model.PrefixRange(model.PoolPrefix()), model.KeyRange(model.IPAMConfigKey{})})
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

// needHost asks for the labels of a block's host if its pool selects hosts by labels and freeing that many addresses
// makes the block empty.
func (p *Plan) needHost(n *needs, b *model.Block, freed int) {
	if pool := p.poolOf(b.CIDR); pool != nil && pool.selector != nil && b.Affinity != "" && len(b.Unallocated)+freed == b.Size() {
		n.add(model.KeyRange(model.HostMetadataKey{Host: b.Affinity}))
	}
}

// settle completes a block from which addresses were freed.
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

// wanted reports whether an empty block should be kept.
func (p *Plan) wanted(b *model.Block) bool {
	config, err := p.config()
	if err != nil || !config.AutoAllocateBlocks || b.StrictAffinity {
		return true
	}
	if b.Affinity == "" {
		return false
	}
	pool := p.poolOf(b.CIDR)
	if pool == nil {
		return false
	}
	picked := !p.view.Has(model.HostMetadataKey{Host: b.Affinity}) || pool.picks(p.labels(b.Affinity)) // if the host was not read, GiveBack decides
	return pool.err != nil || pool.IPAM && pool.Serves(model.ForWorkloads) && !pool.yields() && pool.BlockSize == b.CIDR.Bits() && picked
}

// Held returns the addresses of a handle.
//
// Errors: as for Release.
func (p *Plan) Held(handle string) ([]Assigned, error) {
	n := &needs{index: p.index}
	if !n.addAll(handleRanges(handle)) {
		return nil, n.err()
	}
	h, err := p.valid(handle)
	if err != nil {
		return nil, err
	}
	for _, c := range h.sorted() {
		n.block(c)
	}
	if err := n.err(); err != nil {
		return nil, err
	}
	var out []Assigned
	for _, c := range h.sorted() {
		b, err := p.peek(c)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		got := Assigned{Block: c, Existing: true}
		if pool := p.poolOf(c); pool != nil {
			got.Pool = pool.CIDR
		}
		for _, o := range heldBy(b, handle) {
			got.Addr, got.Attributes = addrOf(b, o), holder(b, o).Secondary
			out = append(out, got)
		}
	}
	return out, nil
}
