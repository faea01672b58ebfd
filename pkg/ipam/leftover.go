// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// A leftover is an empty block from which nothing may be allocated any more (see Release): it was already empty when
// its pool was deleted or changed. A host that claims a block may replace it, and its own host gives it back.

func (p *Plan) leftover(b *model.Block) bool { return isEmpty(b) && !p.wanted(b) }

// GiveBack deletes a block of the host if it is a leftover, and reports whether it did.
//
// Errors: *model.NeedRangesError; *InvalidError.
func (p *Plan) GiveBack(host string, block netip.Prefix) (bool, error) {
	n := &needs{index: p.index}
	if !n.addAll(append(FirstReadGiveBack(block), model.KeyRange(model.HostMetadataKey{Host: host}))) {
		return false, n.err()
	}
	b, err := p.peek(block)
	if err != nil || b == nil || b.Affinity != host || !p.leftover(b) {
		return false, err
	}
	p.remove(p.edit(block))
	return true, nil
}

// maxCleared is how many leftovers one request may delete per family: each takes two of the 128 operations per etcd
// transaction. If more are in the way, one of them is taken over.
const maxCleared = 16

// room reports whether a block of the pool can be made at c, and returns the leftovers that must be deleted for it.
func (a *assignment) room(c netip.Prefix, p *pool) (leftovers []netip.Prefix, ok, known bool) {
	known = true
	for _, r := range overlapRanges(c) {
		ranges := []model.Range{r}
		if a.overflowed(r) {
			ranges = a.poolRanges(p)
		}
		known = a.needs.addAll(ranges) && known
	}
	if !known {
		return nil, false, false
	}
	if a.exists(c) || !a.alone(c, p) {
		return nil, false, true
	}
	var unread []netip.Prefix
	for b := range a.overlapping(c) {
		switch {
		case slices.Contains(leftovers, b):
			continue
		case a.drafts[b] == nil && !a.knowsBlock(b):
			unread = append(unread, b)
			continue
		}
		if m, err := a.peek(b); err != nil || m == nil || !a.leftover(m) {
			return nil, false, true
		}
		leftovers = append(leftovers, b)
	}
	if len(leftovers)+len(unread) > maxCleared/max(1, len(a.Addrs)) {
		return nil, false, true
	}
	for _, b := range unread {
		a.needs.block(b)
	}
	return leftovers, len(unread) == 0, len(unread) == 0
}

// clear picks an address from a block of the pool's size that replaces a leftover of another size. got is nil if
// something else is in the way there too.
func (s *search) clear(leftover netip.Prefix) (got *pick, known bool) {
	at := leftover.Addr()
	if !s.pool.CIDR.Contains(at) {
		at = s.pool.CIDR.Addr()
	}
	c := s.pool.blockOf(at)
	leftovers, ok, known := s.room(c, s.pool)
	if !ok || s.reserved.Covers(c) {
		return nil, known
	}
	return &pick{from: fromNew, block: c, ordinal: nextFree, pool: s.pool, clears: leftovers}, true
}
