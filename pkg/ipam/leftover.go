// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// A leftover is an empty block from which nothing may be allocated any more, see
// Release: it was empty already when its pool went or was changed. A host that
// claims a block may take its place, and its own host gives it back.

func (p *Plan) leftover(b *model.Block) bool { return isEmpty(b) && !p.wanted(b) }

// GiveBack deletes a block of the host's that is a leftover, and reports whether it is one.
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

// maxCleared is how many leftovers one request may delete in each family: each is two operations of
// the 128 that etcd takes at once. Where more are in the way, one of them is taken over.
const maxCleared = 16

// room reports whether a block of the pool's can be made at c, and which leftovers
// are to be deleted for it.
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

// clear picks from a block of the pool's size that is made in the place of a
// leftover of another size. It is nil where something else is in the way there, too.
func (s *search) clear(leftover netip.Prefix) (got *pick, known bool) {
	at := leftover.Addr()
	if !s.pool.CIDR.Contains(at) {
		at = s.pool.CIDR.Addr()
	}
	c := s.pool.blockOf(at)
	leftovers, ok, known := s.room(c, s.pool)
	if !ok {
		return nil, known
	}
	return &pick{from: fromNew, block: c, ordinal: nextFree, pool: s.pool, clears: leftovers}, true
}
