// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// fromNew picks from a block that doesn't exist yet. known is false where more
// must be read to tell.
func (a *assignment) fromNew(e *eligible) (got *pick, known bool) {
	if c, p, known := a.orphan(e); p != nil || !known {
		return newPick(c, p), known
	}
	for i, p := range e.pools {
		c, found, known := a.gap(e.pools[i:])
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

// orphan is a block that the host has affinity to and that doesn't exist:
// somebody else made the affinity or deleted the block.
func (a *assignment) orphan(e *eligible) (c netip.Prefix, p *pool, known bool) {
	for _, own := range a.view.affinities(a.Host) {
		if isV6(own.cidr) != e.v6 || a.exists(own.cidr) || a.blocks[own.cidr] != nil {
			continue
		}
		p := a.view.poolOf(own.cidr)
		if !e.has(p) || p.BlockSize != own.cidr.Bits() || !a.view.knows(Want{Key: model.BlockKey{CIDR: own.cidr}}) {
			continue
		}
		wants := overlapWants(own.cidr)
		if slices.ContainsFunc(wants, a.view.overflowed) {
			continue // to want that again would be without end
		}
		if !a.needs.addAll(wants) {
			return c, nil, false
		}
		if a.vacant(own.cidr, p) {
			return own.cidr, p, true
		}
	}
	return c, nil, true
}

// gap finds a block of the first pool's size that overlaps nothing: the first of
// the host's walk. The other pools are those that come next.
func (a *assignment) gap(pools []*pool) (c netip.Prefix, found, known bool) {
	p := pools[0]
	w := walkOf(a.Host, p)
	near, wide := a.windows(w)
	known = true
	for i, u := range wide.units {
		wants, ahead := overlapWants(u), i >= len(near.units)
		if ahead && !known {
			break
		}
		if slices.ContainsFunc(wants, func(want Want) bool { return a.view.overflowed(want) || ahead && !a.view.knows(want) }) {
			return a.listedGap(w)
		}
		if !a.needs.addAll(wants) {
			known = false
			continue
		}
		for _, c := range wide.blocks {
			if u.Overlaps(c) && a.vacant(c, p) {
				return c, true, true
			}
		}
	}
	switch {
	case !known:
		a.ifFull(pools)
		return c, false, false
	case wide.whole:
		return c, false, true
	}
	return a.listedGap(w)
}

// overflowed reports whether the listing of a region stopped at its limit.
func (v *View) overflowed(w Want) bool {
	l := v.listings[w.Prefix]
	return w.Key == nil && l != nil && !l.done && !v.listed(w.Prefix)
}

// vacant reports whether a block may be made there: nothing that exists
// overlaps it, and no other pool does.
func (a *assignment) vacant(c netip.Prefix, p *pool) bool {
	return a.view.alone(c, p) && !a.overlap(c).IsValid()
}

// alone reports whether no pool but p has a part of c: a block lies in exactly one.
func (v *View) alone(c netip.Prefix, p *pool) bool {
	return !slices.ContainsFunc(v.pools, func(other *pool) bool { return other != p && other.CIDR.Overlaps(c) })
}

// overlap is a block that exists and overlaps c, the zero Prefix if there is none.
func (p *Plan) overlap(c netip.Prefix) netip.Prefix {
	for b := range p.overlapping(c) {
		return b
	}
	return netip.Prefix{}
}

// overlapping gives the blocks that exist and overlap c, some more than once.
func (p *Plan) overlapping(c netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for l := largestBlock(isV6(c)); l <= c.Bits(); l++ {
			if super := netip.PrefixFrom(c.Addr(), l).Masked(); p.exists(super) && !yield(super) {
				return
			}
		}
		for r := regionOf(c.Addr()); r.IsValid() && c.Overlaps(r); r = nextPrefix(r) {
			for _, b := range p.view.nearby[r] {
				if c.Overlaps(b) && p.exists(b) && !yield(b) {
					return
				}
			}
		}
		for _, b := range p.drafts() {
			if c.Overlaps(b) && p.exists(b) && !yield(b) {
				return
			}
		}
	}
}

// listedGap is the gap after all blocks of the pool have been listed.
func (a *assignment) listedGap(w walk) (c netip.Prefix, found, known bool) {
	if !a.needs.addAll(a.view.poolWants(w.pool)) {
		return c, false, false
	}
	c, found = a.firstGap(w)
	if !found {
		return c, false, true
	}
	// Larger blocks that begin before the pool's text does.
	if !a.needs.addAll(overlapWants(c)) {
		return c, false, false
	}
	return c, true, true
}

// span is a run of a pool's blocks, by index.
type span struct{ first, last number }

// firstGap is the first block of the walk that overlaps no known block and no
// other pool.
func (a *assignment) firstGap(w walk) (netip.Prefix, bool) {
	var taken []span
	occupy := func(c netip.Prefix) {
		if w.pool.CIDR.Overlaps(c) {
			taken = append(taken, w.span(c))
		}
	}
	for c := range a.view.blocks {
		if a.exists(c) {
			occupy(c)
		}
	}
	for c, d := range a.blocks {
		if !d.gone {
			occupy(c)
		}
	}
	for _, other := range a.view.pools {
		if other != w.pool {
			occupy(other.CIDR)
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

// freeFrom is the first index from n to last that no span covers; spans are in order.
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

// span of a prefix that overlaps the pool.
func (w walk) span(c netip.Prefix) span {
	if c.Bits() <= w.pool.CIDR.Bits() {
		return span{last: number{}.sub(one).low(w.unitBits + w.innerBits)}
	}
	size := one.shl(c.Addr().BitLen() - c.Bits())
	end := numberOf(c.Addr()).add(size).sub(one).addr(isV6(c))
	return span{w.index(c.Addr()), w.index(end)}
}
