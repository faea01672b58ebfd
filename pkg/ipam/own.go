// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"maps"
	"net/netip"
	"slices"
)

// ownRound is how many of the host's own blocks are read in one round, both families together: all of them, unless
// there are thousands. If blocks have a single address, a host has as many blocks as pods.
const ownRound = 2000

// fromOwn picks an address from a block with affinity to the host: of the known blocks with a free address, the most
// recently claimed one. So blocks are filled one after another, and the older ones may become empty. If there is none,
// unread returns blocks to read first, most recently claimed first.
func (a *assignment) fromOwn(e *eligible) (got *pick, unread []netip.Prefix) {
	for _, c := range a.drafted() {
		if isV6(c) == e.v6 {
			if got := a.ownPick(e, c); got != nil {
				return got, nil
			}
		}
	}
	limit := ownRound
	if a.wants(!e.v6) {
		limit /= 2
	}
	for _, own := range a.own[a.Host] {
		switch {
		case isV6(own.cidr) != e.v6 || a.drafts[own.cidr] != nil:
		case a.blocks[own.cidr].free() > 0:
			if got := a.ownPick(e, own.cidr); got != nil {
				return got, nil
			}
		case len(unread) < limit && !a.knowsBlock(own.cidr) && e.has(a.poolOf(own.cidr)):
			unread = append(unread, own.cidr)
		}
	}
	return nil, unread
}

// ownPick returns nil if the block can't be used: it is full apart from reserved addresses, invalid, or not the host's
// after all, or its pool may not serve the request.
func (a *assignment) ownPick(e *eligible, c netip.Prefix) *pick {
	b, err := a.peek(c)
	if err != nil || b == nil || b.Affinity != a.Host {
		return nil
	}
	if _, free := a.next(b); !free {
		return nil
	}
	p := a.poolOf(c)
	if !e.has(p) {
		return nil
	}
	return &pick{from: fromOwn, block: c, ordinal: nextFree, pool: p}
}

// drafted returns the blocks that the plan has changed so far, sorted.
func (p *Plan) drafted() []netip.Prefix {
	if len(p.drafts) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(p.drafts), netip.Prefix.Compare)
}
