// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// fromOthers picks an address from blocks of other hosts. It first looks at those that have been read, such as the one
// that the host borrowed from last; then it reads the others, some at a time, in the order of the walk. Among those
// examined in a pool, it prefers taking over an empty block to borrowing. It returns nil without an error if more must
// be read.
func (a *assignment) fromOthers(e *eligible, config model.IPAMConfig) (*pick, error) {
	var searches []*search
	for _, p := range e.pools {
		s := &search{assignment: a, pool: p, config: config}
		if got, known := s.run(); got != nil || !known {
			return got, nil
		}
		searches = append(searches, s)
	}
	failed := &ExhaustedError{IPv6: e.v6, Pools: slices.Clone(e.refused), Fixed: !config.AutoAllocateBlocks}
	for _, s := range searches {
		for _, c := range s.unread[:min(len(s.unread), maxRanges)] {
			s.needs.block(c)
		}
		if len(s.unread) > 0 {
			return nil, nil
		}
		failed.Pools = append(failed.Pools, PoolReason{s.pool.CIDR, s.why()})
	}
	return nil, failed
}

// search goes through the blocks of one pool that belong to other hosts.
type search struct {
	*assignment
	pool   *pool
	config model.IPAMConfig
	unread []netip.Prefix
	// Counts of what was found, for the error if there is no address.
	blocks, full, invalid, strict, young int
	inTheWay                             []netip.Prefix // blocks of another size than the pool's
}

// run looks at the blocks that have been read. Which ones exist is known from fromNew's listing.
func (s *search) run() (got *pick, known bool) {
	if !s.config.AutoAllocateBlocks {
		return nil, true // nothing may be borrowed either: affinity is strict then
	}
	var read []netip.Prefix
	for _, c := range s.inPool() {
		if s.drafts[c] != nil || s.knowsBlock(c) {
			read = append(read, c)
		} else {
			s.unread = append(s.unread, c)
		}
	}
	s.blocks = len(read) + len(s.unread)
	return s.look(read)
}

// inPool returns the known blocks of the pool, and those around it, in the order of the walk.
func (s *search) inPool() []netip.Prefix {
	var all []netip.Prefix
	add := func(c netip.Prefix) {
		if s.pool.CIDR.Overlaps(c) && s.exists(c) && (s.around(c) || s.poolOf(c) == s.pool) {
			all = append(all, c)
		}
	}
	for c := range s.Plan.blocks {
		add(c)
	}
	for c := range s.drafts {
		if _, stored := s.Plan.blocks[c]; !stored {
			add(c)
		}
	}
	w := walkOf(s.Host, s.pool)
	slices.SortFunc(all, func(x, y netip.Prefix) int { return w.distance(x.Addr()).cmp(w.distance(y.Addr())) })
	return all
}

// around reports whether the block contains the pool and more.
func (s *search) around(c netip.Prefix) bool { return c.Bits() < s.pool.CIDR.Bits() }

// obstruct notes a block that occupies the place of one of the pool's size.
func (s *search) obstruct(c netip.Prefix) {
	if c.Bits() > s.pool.BlockSize || s.around(c) {
		s.inTheWay = append(s.inTheWay, c)
	}
}

func (s *search) look(some []netip.Prefix) (got *pick, known bool) {
	known = true
	var borrow *pick
	for _, c := range some {
		b, err := s.peek(c)
		if err != nil || b == nil {
			s.invalid++
			continue
		}
		if c.Bits() != s.pool.BlockSize && s.leftover(b) {
			got, read := s.clear(c)
			if got != nil {
				return got, true
			}
			known = known && read
		} else {
			s.obstruct(c)
		}
		if s.around(c) {
			continue
		}
		if _, free := s.next(b); !free {
			s.full++
			continue
		}
		switch take, left, ok := s.reclaimable(b, s.config); {
		case !ok:
			known = false
			continue
		case take:
			return &pick{from: fromEmpty, block: c, ordinal: nextFree, pool: s.pool, left: left}, true
		}
		if isEmpty(b) && b.Affinity != s.Host {
			s.young++
		}
		switch {
		case b.Affinity == s.Host: // its affinity key is missing
			return &pick{from: fromEmpty, block: c, ordinal: nextFree, pool: s.pool}, true
		case !borrowable(b, s.config):
			s.strict++
		case borrow == nil:
			borrow = &pick{from: fromOther, block: c, ordinal: nextFree, pool: s.pool}
		}
	}
	if !known {
		return nil, false
	}
	return borrow, true
}

// borrowable reports whether any host may take addresses from the block.
func borrowable(b *model.Block, config model.IPAMConfig) bool {
	return !config.StrictAffinity && !b.StrictAffinity
}

// reclaimable reports whether the host may take the block over: the block is empty and has been for a while, or no host
// has it, or the host that has it left the cluster. left is that host, if its absence is what decided. A block may be
// taken over, too, if it doesn't say since when it has been empty (some programs don't keep that) or if that time is in
// the future (its host's clock was wrong).
func (a *assignment) reclaimable(b *model.Block, config model.IPAMConfig) (take bool, left string, known bool) {
	if !isEmpty(b) || !config.AutoAllocateBlocks || b.Affinity == a.Host {
		return false, "", true
	}
	if b.Affinity == "" || b.EmptySince.IsZero() || a.Now.Sub(b.EmptySince).Abs() >= EmptyBeforeReclaim {
		return true, "", true
	}
	host := model.HostMetadataKey{Host: b.Affinity}
	if borrowable(b, config) && !a.view.Has(host) {
		return false, "", true // borrowing one of its addresses does as well, without another round
	}
	if !a.needs.add(model.KeyRange(host)) {
		return false, "", false
	}
	if a.view.Get(host).Exists() {
		return false, "", true
	}
	return true, b.Affinity, true
}

// shownInTheWay is how many blocks an error lists.
const shownInTheWay = 3

// why returns the reason why nothing was found.
func (s *search) why() string {
	var parts []string
	if s.config.AutoAllocateBlocks {
		parts = append(parts, "no room for a new block")
	} else {
		parts = append(parts, "this node has no free address in blocks of its own, and auto_allocate_blocks is false")
	}
	for _, other := range s.pools {
		if other != s.pool && !other.yields() && other.CIDR.Overlaps(s.pool.CIDR) {
			parts = append(parts, fmt.Sprintf("it overlaps pool %s", other.CIDR))
		}
	}
	if s.reserved.Within(s.pool.CIDR) != nil {
		parts = append(parts, "some of its addresses are reserved")
	}
	if n := len(s.inTheWay); n > 0 && s.config.AutoAllocateBlocks {
		names := fmt.Sprint(s.inTheWay[0])
		for _, c := range s.inTheWay[1:min(n, shownInTheWay)] {
			names += ", " + c.String()
		}
		if n > shownInTheWay {
			names += fmt.Sprintf(" and %d more", n-shownInTheWay)
		}
		parts = append(parts, fmt.Sprintf("where blocks of another size are, no block of its block_size %d can be made: delete the pods of %s, or set block_size back",
			s.pool.BlockSize, names))
	}
	count := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d of its %d blocks %s", n, s.blocks, what))
		}
	}
	count(s.full, "are full")
	count(s.strict, "have free addresses, and may not be borrowed from: affinity is strict")
	count(s.young, "have been empty for too short a time to take over")
	count(s.invalid, "are invalid and left alone")
	return strings.Join(parts, "; ")
}
