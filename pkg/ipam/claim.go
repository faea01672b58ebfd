// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"iter"
	"net/netip"
	"slices"
)

// fromNew picks an address from a block that doesn't exist yet. known is false if more must be read first.
func (a *assignment) fromNew(e *eligible) (got *pick, known bool) {
	if c, p, known := a.orphan(e); p != nil || !known {
		return newPick(c, p), known
	}
	for _, p := range e.pools {
		c, found, known := a.gap(p)
		if !known {
			return nil, false
		}
		if found {
			return newPick(c, p), true
		}
	}
	return nil, true
}

func newPick(c netip.Prefix, p *pool) *pick {
	if p == nil {
		return nil
	}
	return &pick{from: fromNew, block: c, ordinal: nextFree, pool: p}
}

// orphan returns a block that the host has affinity to but that doesn't exist, because another program made the
// affinity or deleted the block.
func (a *assignment) orphan(e *eligible) (c netip.Prefix, p *pool, known bool) {
	for _, own := range a.own[a.Host] {
		if isV6(own.cidr) != e.v6 || a.exists(own.cidr) || a.drafts[own.cidr] != nil {
			continue
		}
		p := a.poolOf(own.cidr)
		if !e.has(p) || p.BlockSize != own.cidr.Bits() || !a.knowsBlock(own.cidr) {
			continue
		}
		ranges := overlapRanges(own.cidr)
		if slices.ContainsFunc(ranges, a.overflowed) {
			continue // needing the listing again would loop forever
		}
		if !a.needs.addAll(ranges) {
			return c, nil, false
		}
		if a.vacant(own.cidr, p) {
			return own.cidr, p, true
		}
	}
	return c, nil, true
}

// gap finds a block of the pool's size that overlaps nothing: the first in the order of the host's walk. It lists a few
// regions where the walk begins, and the whole pool only if those are full.
func (a *assignment) gap(p *pool) (c netip.Prefix, found, known bool) {
	w := walkOf(a.Host, p)
	units, blocks, whole := a.near(w)
	known = true
	for _, u := range units {
		ranges := overlapRanges(u)
		if slices.ContainsFunc(ranges, a.overflowed) {
			return a.listedGap(w)
		}
		known = a.needs.addAll(ranges) && known
	}
	if !known {
		return c, false, false
	}
	for _, c := range blocks {
		if a.vacant(c, p) {
			return c, true, true
		}
	}
	if whole {
		return c, false, true
	}
	return a.listedGap(w)
}

// maxSkipped bounds how many units near skips: another pool may cover most of this one.
const maxSkipped = 1 << 12

// near returns the units where the walk begins that have some blocks the host may claim, unless they exist. There are
// enough of them that they are rarely all taken before the pool is nearly full.
func (a *assignment) near(w walk) (units, blocks []netip.Prefix, whole bool) {
	mine := map[netip.Prefix]bool{}
	for _, own := range a.own[a.Host] {
		mine[own.cidr] = a.exists(own.cidr) || !a.knowsBlock(own.cidr)
	}
	n := max(1, 16>>max(0, regionBits(isV6(w.pool.CIDR))-w.pool.BlockSize))
	i := 0
	for ; len(blocks) < n && i < w.units(i+1) && i-len(units) < maxSkipped; i++ {
		before := len(blocks)
		for c := range func(yield func(netip.Prefix) bool) { w.within(i, yield) } {
			if !mine[c] && a.alone(c, w.pool) && !a.reserved.Covers(c) {
				blocks = append(blocks, c)
			}
		}
		if len(blocks) > before {
			units = append(units, w.at(i))
		}
	}
	return units, blocks, i == w.units(i+1)
}

// vacant reports whether a block may be made at c: no existing block and no other pool overlaps it, and not all of it is
// reserved.
func (a *assignment) vacant(c netip.Prefix, p *pool) bool {
	return a.alone(c, p) && !a.overlap(c).IsValid() && !a.reserved.Covers(c)
}

// overlap returns an existing block that overlaps c, or the zero Prefix.
func (p *Plan) overlap(c netip.Prefix) netip.Prefix {
	for b := range p.overlapping(c) {
		return b
	}
	return netip.Prefix{}
}

// overlapping yields the existing blocks that overlap c, some more than once.
func (p *Plan) overlapping(c netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for l := largestBlock(isV6(c)); l <= c.Bits(); l++ {
			if super := netip.PrefixFrom(c.Addr(), l).Masked(); p.exists(super) && !yield(super) {
				return
			}
		}
		for r := regionOf(c.Addr()); r.IsValid() && c.Overlaps(r); r = nextPrefix(r) {
			for _, b := range p.nearby[r] {
				if c.Overlaps(b) && p.exists(b) && !yield(b) {
					return
				}
			}
		}
		for _, b := range p.drafted() {
			if c.Overlaps(b) && p.exists(b) && !yield(b) {
				return
			}
		}
	}
}

// listedGap is gap after listing all blocks of the pool.
func (a *assignment) listedGap(w walk) (c netip.Prefix, found, known bool) {
	if !a.needs.addAll(a.poolRanges(w.pool)) {
		return c, false, false
	}
	c, found = a.firstGap(w)
	return c, found, true
}

// span is a run of a pool's blocks, by index.
type span struct{ first, last number }

// firstGap returns the first block of the walk that overlaps neither a known block nor another pool, and is not reserved
// as a whole.
func (a *assignment) firstGap(w walk) (netip.Prefix, bool) {
	var taken []span
	occupy := func(c netip.Prefix) {
		if w.pool.CIDR.Overlaps(c) {
			taken = append(taken, w.span(c))
		}
	}
	for c := range a.blocks {
		if a.exists(c) {
			occupy(c)
		}
	}
	for c, d := range a.drafts {
		if !d.gone {
			occupy(c)
		}
	}
	for _, other := range a.pools {
		if other != w.pool {
			occupy(other.CIDR)
		}
	}
	for _, c := range a.reserved {
		if c.Bits() <= w.pool.BlockSize { // of others, some addresses of the block are left
			occupy(c)
		}
	}
	slices.SortFunc(taken, func(x, y span) int { return x.first.cmp(y.first) })
	last := number{}.sub(one).low(w.unitBits + w.innerBits)
	start := w.start.shl(w.innerBits).add(number{lo: w.offset})
	n, ok := freeFrom(taken, start, last)
	if !ok {
		n, ok = freeFrom(taken, number{}, last)
	}
	if !ok {
		return netip.Prefix{}, false
	}
	return w.prefix(n, w.pool.BlockSize), true
}

// freeFrom returns the first index from n to last that no span covers. The spans must be sorted.
func freeFrom(taken []span, n, last number) (number, bool) {
	for _, t := range taken {
		if t.first.cmp(n) > 0 {
			break
		}
		if t.last.cmp(n) < 0 {
			continue
		}
		if t.last.cmp(last) >= 0 {
			return n, false
		}
		n = t.last.add(one)
	}
	return n, true
}

// span returns the indexes of the blocks covered by a prefix that overlaps the pool.
func (w walk) span(c netip.Prefix) span {
	if c.Bits() <= w.pool.CIDR.Bits() {
		return span{last: number{}.sub(one).low(w.unitBits + w.innerBits)}
	}
	size := one.shl(c.Addr().BitLen() - c.Bits())
	end := numberOf(c.Addr()).add(size).sub(one).addr(isV6(c))
	return span{w.index(c.Addr()), w.index(end)}
}
