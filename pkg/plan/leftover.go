// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
)

// Leftovers are this host's blocks that are empty and that no pool has, or one that gives no
// addresses out or has blocks of another size. Whether somebody wants them is for
// ipam.GiveBack to say.
func (e *Engine) Leftovers() []netip.Prefix {
	var all []netip.Prefix
	for p := range e.mine {
		_, pool, inPool := e.pools.longest(p)
		if e.blocks.all[p].empty() && !(inPool && pool.gives && pool.size == p.Bits()) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}
