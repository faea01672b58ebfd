// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// pools has the existing pools; true = it masquerades.
type pools struct {
	byCIDR  map[netip.Prefix]bool
	changed bool
	told    Pools // as returned by the last Flush
}

// update processes a pool. For an invalid one, its previous value counts if known; its addresses count as a pool's in
// any case.
func (ps *pools) update(key model.PoolKey, entry model.Entry) {
	ps.changed = true
	if !entry.Exists() {
		delete(ps.byCIDR, key.CIDR)
		return
	}
	pool, _ := entry.Value.(model.Pool)
	ps.byCIDR[key.CIDR] = pool.Masquerade
}

// flush returns nil if nothing changed.
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

// Masquerades reports whether a packet with these addresses, after destination NAT, leaves a host with the host's
// address as its source.
func (p Pools) Masquerades(src, dst netip.Addr) bool {
	return contains(p.Masquerade, src) && !contains(p.All, dst)
}

// outermost sorts prefixes and drops those inside another.
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
