// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// index is the content of a view, arranged for lookups.
type index struct {
	view   *model.View
	pools  []*pool // by CIDR
	blocks map[netip.Prefix]block
	absent map[netip.Prefix]bool // blocks that were read and don't exist
	// nearby has the existing blocks by the region of their first address.
	nearby map[netip.Prefix][]netip.Prefix
	own    map[string][]affinity // by host, most recently claimed first
	listed []string              // path prefixes of which every key is known
	pages  map[string]string     // prefixes listed in part: where the next page begins
	// reserved are the addresses that only a request that names them gets; unreadable is the error of a reservation.
	reserved   model.Reserved
	unreadable error
}

// block is a block that exists.
type block struct {
	entry model.Entry
	read  bool // with its value, not the key alone
}

// free returns how many addresses are free: 0 if the block is invalid or was not read.
func (b block) free() int {
	m, _ := b.entry.Value.(model.Block)
	return len(m.Unallocated)
}

// affinity is a block that a host has an affinity to.
type affinity struct {
	cidr    netip.Prefix
	created int64
}

// pool is a stored pool.
type pool struct {
	model.Pool
	entry    model.Entry
	err      error // why no addresses are assigned from it
	selector *selector.Selector
	spaces   *selector.Selector // of namespaces
	under    *pool              // the oldest overlapping pool that claims its range, or nil
}

// claims reports whether addresses are assigned from the pool, or may be once its entry has been corrected.
func (p *pool) claims() bool { return !p.Disabled && (p.err != nil || p.IPAM) }

// yields reports whether the pool gives way to pools that overlap it: it is disabled, or newer.
func (p *pool) yields() bool { return p.under != nil || p.Disabled }

var errNotCanonical = errors.New("the key is not in its canonical form, so it can't be compared")

func newIndex(v *model.View) *index {
	x := &index{
		view: v, blocks: map[netip.Prefix]block{}, absent: map[netip.Prefix]bool{},
		nearby: map[netip.Prefix][]netip.Prefix{}, own: map[string][]affinity{}, pages: map[string]string{},
	}
	for _, r := range v.Ranges() {
		entries, _ := v.Read(r)
		for _, e := range entries {
			x.add(e, r.KeysOnly)
		}
		k, isBlock := r.Key.(model.BlockKey)
		switch full := r.Limit > 0 && int64(len(entries)) >= r.Limit; {
		case isBlock && len(entries) == 0:
			x.absent[k.CIDR] = true
		case r.Key != nil:
		case full:
			x.pages[r.Prefix] = entries[len(entries)-1].Path + "\x00"
		default:
			x.listed = append(x.listed, r.Prefix)
		}
	}
	x.reserved = model.NewReserved(x.reserved)
	x.rankPools()
	for host, blocks := range x.own {
		slices.SortFunc(blocks, func(a, b affinity) int {
			return cmp.Or(cmp.Compare(b.created, a.created), a.cidr.Compare(b.cidr))
		})
		x.own[host] = slices.Compact(blocks)
	}
	return x
}

func (x *index) add(e model.Entry, keysOnly bool) {
	switch k := e.Key.(type) {
	case model.BlockKey:
		e = canonical(e)
		have, known := x.blocks[k.CIDR]
		if !known {
			r := regionOf(k.CIDR.Addr())
			x.nearby[r] = append(x.nearby[r], k.CIDR)
		}
		if !have.read {
			x.blocks[k.CIDR] = block{entry: e, read: !keysOnly || e.Err != nil}
		}
	case model.AffinityKey:
		x.own[k.Host] = append(x.own[k.Host], affinity{k.CIDR, e.Created})
	case model.PoolKey:
		if !keysOnly {
			x.addPool(k, canonical(e))
		}
	case model.ReservationKey:
		v, _ := e.Value.(model.Reservation)
		x.reserved = append(x.reserved, v.CIDRs...)
		if e.Err != nil {
			x.unreadable = &InvalidError{Path: e.Path, Err: e.Err}
		}
	}
}

// canonical sets the error of an entry whose key is another spelling of the same object's path: a compare on the
// canonical path would never succeed.
func canonical(e model.Entry) model.Entry {
	if e.Err == nil && e.Exists() && e.Path != "" && e.Path != e.Key.Path() {
		e.Err = errNotCanonical
	}
	return e
}

func (x *index) addPool(k model.PoolKey, e model.Entry) {
	p := &pool{entry: e, err: e.Err}
	p.Pool, _ = e.Value.(model.Pool)
	p.CIDR = k.CIDR
	if p.err == nil {
		p.check()
	}
	x.pools = append(slices.DeleteFunc(x.pools, func(q *pool) bool { return q.CIDR == k.CIDR }), p)
}

// rankPools sorts the pools, and marks the newer ones among those that overlap.
func (x *index) rankPools() {
	slices.SortFunc(x.pools, func(a, b *pool) int {
		return cmp.Or(cmp.Compare(a.entry.Created, b.entry.Created), a.CIDR.Compare(b.CIDR))
	})
	for i, p := range x.pools {
		over := slices.IndexFunc(x.pools[:i], func(q *pool) bool { return q.claims() && q.under == nil && q.CIDR.Overlaps(p.CIDR) })
		if over >= 0 && p.claims() {
			p.under = x.pools[over]
		}
	}
	slices.SortFunc(x.pools, func(a, b *pool) int { return a.CIDR.Compare(b.CIDR) })
}

// knows reports whether r has been read, by itself or as part of a larger range.
func (x *index) knows(r model.Range) bool {
	switch k := r.Key.(type) {
	case nil:
		return x.isListed(r.Prefix)
	case model.BlockKey:
		if b, ok := x.blocks[k.CIDR]; ok {
			return b.read || r.KeysOnly
		}
		return x.absent[k.CIDR] || x.isListed(k.Path())
	}
	return x.view.Has(r.Key)
}

func (x *index) knowsBlock(c netip.Prefix) bool {
	return x.knows(model.KeyRange(model.BlockKey{CIDR: c}))
}

// isListed reports whether all keys that begin with path have been listed.
func (x *index) isListed(path string) bool {
	return slices.ContainsFunc(x.listed, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// overflowed reports whether listing a region stopped at its limit.
func (x *index) overflowed(r model.Range) bool {
	_, partly := x.pages[r.Prefix]
	return r.Key == nil && partly && !x.isListed(r.Prefix)
}

// block returns a block for reading only, nil if it doesn't exist. The value of an existing block must have been read.
func (x *index) block(c netip.Prefix) (*model.Block, error) {
	b, ok := x.blocks[c]
	if !ok {
		return nil, nil
	}
	if b.entry.Err != nil {
		return nil, &InvalidError{Path: b.entry.Path, Err: b.entry.Err}
	}
	m, ok := b.entry.Value.(model.Block)
	if !ok || m.CIDR != c {
		return nil, &InvalidError{Path: b.entry.Path, Err: fmt.Errorf("not block %s", c)}
	}
	return &m, nil
}

// next returns the ordinal that has been free the longest of those that aren't reserved. found is false if there is none.
func (x *index) next(b *model.Block) (ordinal int, found bool) {
	reserved := x.reserved.Within(b.CIDR)
	i := slices.IndexFunc(b.Unallocated, func(o int) bool { return !reserved.Contains(addrOf(b, o)) })
	if i < 0 {
		return 0, false
	}
	return b.Unallocated[i], true
}

// config returns the cluster's settings, or an error if they are invalid.
func (x *index) config() (model.IPAMConfig, error) {
	e := x.view.Get(model.IPAMConfigKey{})
	switch c, ok := e.Value.(model.IPAMConfig); {
	case e.Err != nil:
		return model.IPAMConfig{}, &InvalidError{Path: e.Path, Err: e.Err}
	case ok:
		return c, nil
	}
	return model.DefaultIPAMConfig, nil
}

// poolOf returns the smallest pool that contains the whole prefix, or nil. Pools that yield come last.
func (x *index) poolOf(c netip.Prefix) *pool {
	var best *pool
	for _, p := range x.pools {
		if p.CIDR.Bits() > c.Bits() || !p.CIDR.Contains(c.Addr()) {
			continue
		}
		if best == nil || best.yields() && !p.yields() || best.yields() == p.yields() && p.CIDR.Bits() > best.CIDR.Bits() {
			best = p
		}
	}
	return best
}

// alone reports whether no pool but p overlaps c, not counting pools that yield: a block lies in exactly one pool.
func (x *index) alone(c netip.Prefix, p *pool) bool {
	return !slices.ContainsFunc(x.pools, func(other *pool) bool { return other != p && !other.yields() && other.CIDR.Overlaps(c) })
}
