// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// ownRound is how many of the host's own blocks are read in one round, of both
// families together: all of them, unless they are thousands. Where blocks have a single address, a host has as many as pods.
const ownRound = 2000

// fromOwn picks from a block with affinity to the host: of those that are
// known and have a free address, the one claimed last. So one block is filled
// after the other and the older ones may become empty. If there is none,
// unread are blocks to be read first, the last claimed ones before others.
func (a *assignment) fromOwn(e *eligible) (got *pick, unread []netip.Prefix) {
	for _, c := range a.drafts() {
		if isV6(c) == e.v6 {
			if got := a.ownPick(e, c); got != nil {
				return got, nil
			}
		}
	}
	for _, own := range a.view.affinities(a.Host) {
		if isV6(own.cidr) == e.v6 && own.state != nil && own.state.read && own.state.free() > 0 && a.blocks[own.cidr] == nil {
			if got := a.ownPick(e, own.cidr); got != nil {
				return got, nil
			}
		}
	}
	return nil, a.unreadOwn(e)
}

// unreadOwn are blocks of the host's own that weren't read.
func (a *assignment) unreadOwn(e *eligible) (unread []netip.Prefix) {
	limit := ownRound
	if a.wants(!e.v6) {
		limit /= 2
	}
	for _, own := range a.view.affinities(a.Host) {
		if own.state != nil && own.state.read || isV6(own.cidr) != e.v6 || len(unread) == limit {
			continue
		}
		if e.has(a.view.poolOf(own.cidr)) && !a.view.knows(Want{Key: model.BlockKey{CIDR: own.cidr}}) {
			unread = append(unread, own.cidr)
		}
	}
	return unread
}

// ownPick is nil where the block can't be used: it is full, invalid, not the
// host's after all, or its pool may not serve the request.
func (a *assignment) ownPick(e *eligible, c netip.Prefix) *pick {
	b, err := a.peek(c)
	if err != nil || b == nil || len(b.Unallocated) == 0 || b.Affinity != a.Host {
		return nil
	}
	p := a.view.poolOf(c)
	if !e.has(p) {
		return nil
	}
	return &pick{from: fromOwn, block: c, ordinal: nextFree, pool: p}
}

// IfTaken is what must be read besides to decide on the request anew, should other calls of its host take the last
// addresses of the blocks that the view knows: the host's other blocks, and where to claim one. It is nothing where the
// known ones have more than there were revisions since.
func (p *Plan) IfTaken(r Request, revisions int64) []Want {
	a := &assignment{Plan: p, Request: r, needs: needs{v: p.view}}
	config, err := a.view.ipamConfig()
	if err != nil {
		return nil
	}
	for _, v6 := range []bool{false, true} {
		e, err := a.view.eligible(r, v6)
		if err != nil || !a.wants(v6) || a.named(v6) || int64(a.knownFree(e)) > revisions {
			continue
		}
		if config.AutoAllocateBlocks {
			a.fromNew(e)
		}
		a.needs.own(a.unreadOwn(e))
	}
	return slices.Concat(a.needs.wants, a.needs.ahead)
}

// knownFree is how many addresses the host's own blocks have that were read.
func (a *assignment) knownFree(e *eligible) (n int) {
	for _, own := range a.view.affinities(a.Host) {
		if own.state != nil && e.has(a.view.poolOf(own.cidr)) {
			n += own.state.free()
		}
	}
	return n
}

// drafts are the blocks that the plan has changed so far.
func (p *Plan) drafts() []netip.Prefix {
	if len(p.blocks) == 0 {
		return nil
	}
	out := make([]netip.Prefix, 0, len(p.blocks))
	for c := range p.blocks {
		out = append(out, c)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}
