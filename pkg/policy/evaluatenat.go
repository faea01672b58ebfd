// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// outer returns the endpoint that has the packet's destination as an ExtIP, and the IntIP for it; nil if there is none.
// Of two endpoints, the one with the lower path counts.
func (e *evaluation) outer() (owner *Endpoint, inner netip.Addr) {
	for _, ep := range e.st.Endpoints {
		if !ep.enforcedWorkload() || owner != nil && owner.Path < ep.Path {
			continue
		}
		i := slices.IndexFunc(ep.NAT, func(n model.NAT) bool { return n.ExtIP == e.p.Dst })
		if i >= 0 {
			owner, inner = ep, ep.NAT[i].IntIP
		}
	}
	return owner, inner
}

// begins reports whether the packet is the first of a connection, so that its addresses may be translated. Neighbour
// discovery belongs to no connection.
func (e *evaluation) begins() bool {
	return e.p.Conn == ConnNew && !e.r.Untracked && !e.p.isNeighbour(false)
}

// destinationNAT is step 3.
func (e *evaluation) destinationNAT() {
	if !e.begins() {
		return
	}
	if owner, inner := e.outer(); owner != nil {
		e.of(owner, model.Inbound, "destination %s becomes %s", e.p.Dst, inner)
		e.r.DNAT, e.p.Dst = inner, inner
	}
}

// sourceNAT is step 7.
func (e *evaluation) sourceNAT() {
	p := &e.p
	if !e.begins() || p.Out == "" || p.Out == "lo" {
		return
	}
	if to := e.hairpin(); to.IsValid() {
		e.note("the endpoint calls itself: source %s becomes %s", p.Src, to)
		e.r.SNAT = to
		return
	}
	if e.st.Pools.Masquerades(p.Src, p.Dst) {
		e.note("from a pool to outside of all pools: masqueraded")
		e.r.Masqueraded = true
	}
}

// hairpin returns the new source for a packet from an endpoint to itself, or the zero Addr for other packets.
func (e *evaluation) hairpin() netip.Addr {
	var to netip.Addr
	for _, ep := range e.st.Endpoints {
		if !ep.enforcedWorkload() || !slices.Contains(ep.Addrs, e.p.Src) {
			continue
		}
		for _, n := range ep.NAT {
			if n.IntIP == e.p.Dst && (!to.IsValid() || n.ExtIP.Less(to)) {
				to = n.ExtIP
			}
		}
	}
	return to
}
