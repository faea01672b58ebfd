// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// pools keep which pools there are; true = it masquerades.
type pools struct {
	byCIDR  map[netip.Prefix]bool
	changed bool
	told    Pools // by the last Flush
}

// update takes in a pool. Of an invalid one what it said before
// counts, if that is known; its addresses are those of a pool in any case.
func (ps *pools) update(key model.PoolKey, entry model.Entry) {
	ps.changed = true
	if !entry.Exists() {
		delete(ps.byCIDR, key.CIDR)
		return
	}
	pool, _ := entry.Value.(model.Pool)
	ps.byCIDR[key.CIDR] = pool.Masquerade
}

// flush gives nil where nothing changed.
func (ps *pools) flush() *Pools {
	if !ps.changed {
		return nil
	}
	ps.changed = false
	now := Pools{All: outermost(slices.Collect(maps.Keys(ps.byCIDR)))}
	var masquerade []netip.Prefix
	for p, on := range ps.byCIDR {
		if on {
			masquerade = append(masquerade, p)
		}
	}
	now.Masquerade = outermost(masquerade)
	if slices.Equal(now.All, ps.told.All) && slices.Equal(now.Masquerade, ps.told.Masquerade) {
		return nil
	}
	ps.told = now
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
