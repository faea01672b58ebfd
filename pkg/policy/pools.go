// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// updatePool takes in a pool: true = it masquerades. Of an invalid one what it said before
// counts, if that is known; its addresses are those of a pool in any case.
func (e *Engine) updatePool(key model.PoolKey, entry model.Entry) {
	e.poolsChanged = true
	if !entry.Exists() {
		delete(e.pools, key.CIDR)
		return
	}
	pool, _ := entry.Value.(model.Pool)
	e.pools[key.CIDR] = pool.Masquerade
}

// flushPools gives nil where nothing changed.
func (e *Engine) flushPools() *Pools {
	if !e.poolsChanged {
		return nil
	}
	e.poolsChanged = false
	now := Pools{All: outermost(slices.Collect(maps.Keys(e.pools)))}
	var masquerade []netip.Prefix
	for p, on := range e.pools {
		if on {
			masquerade = append(masquerade, p)
		}
	}
	now.Masquerade = outermost(masquerade)
	if slices.Equal(now.All, e.toldPools.All) && slices.Equal(now.Masquerade, e.toldPools.Masquerade) {
		return nil
	}
	e.toldPools = now
	return &now
}

// Masquerades says whether what has these addresses, after translation of its
// destination, leaves a host with that one's address.
func (p Pools) Masquerades(src, dst netip.Addr) bool {
	return contains(p.Masquerade, src) && !contains(p.All, dst)
}

// outermost sorts prefixes and leaves out those that are inside another.
func outermost(all []netip.Prefix) []netip.Prefix {
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range all {
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}
