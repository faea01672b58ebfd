// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
)

// Vacant are the addresses of this host's blocks that nobody has, where what is sent to them
// ends here: in a block with a blackhole, and with no narrower way that somebody else made.
func (e *Engine) Vacant() []netip.Addr {
	var all []netip.Addr
	for p := range e.mine {
		if e.told.Routes[p].Kind != Blackhole {
			continue
		}
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			if at, _, _ := e.blocks.longest(single(a)); at == p && e.owner(a) == "" && !e.leadsOn(a, p) {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// leadsOn reports whether a link of the host's own, or a route of another program, leads to an
// address in a block, which comes before the block's blackhole, or may.
func (e *Engine) leadsOn(a netip.Addr, block netip.Prefix) bool {
	subnet, _, linked := e.links.subnets.longest(single(a))
	route, _, routed := e.links.routes.longest(single(a))
	return linked && within(subnet, block) || routed && within(route, block) || e.links.own[a] != ""
}
