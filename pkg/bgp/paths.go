// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"cmp"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// maxWorse is how many paths of a prefix are handed on beside the best ones. They matter only
// where none of the best can be used.
const maxWorse = 4

// pathsOf are the table's paths, which it has in the order of preference, with their ranks, and
// sorted within one. There are none where the best one is ours: what others say of a prefix that
// we advertise is not taken.
func pathsOf(paths []*apiutil.Path, as model.ASNumber) []plan.Path {
	if len(paths) == 0 || !paths[0].Best || !paths[0].PeerAddress.IsValid() {
		return nil
	}
	var all []plan.Path
	rank, worse := 0, 0
	var before merit
	for i, p := range paths {
		if p.Best { // wherever it stands: the library marks by less than it sorts by
			rank = 0
		} else {
			m := meritOf(p, as)
			if paths[i-1].Best || m != before {
				rank = i
			}
			before = m
		}
		hop := nextHop(p)
		if p.IsNexthopInvalid || !p.PeerAddress.IsValid() || !hop.IsGlobalUnicast() && !hop.IsLinkLocalUnicast() {
			continue
		}
		if rank > 0 {
			if worse++; worse > maxWorse {
				continue
			}
		}
		all = append(all, plan.Path{NextHop: hop, Peer: p.PeerAddress, Rank: rank})
	}
	slices.SortFunc(all, func(a, b plan.Path) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), a.NextHop.Compare(b.NextHop), a.Peer.Compare(b.Peer))
	})
	return slices.Clip(all)
}

// merit is what paths are compared by before the tie-breakers (RFC 4271, section 9.1.2.2): those
// that have the same are equally good, as the library takes it (gobgp 4.8, Path.Compare).
type merit struct {
	internal        bool
	preference, med uint32
	length          int
	origin          uint8
}

func meritOf(p *apiutil.Path, as model.ASNumber) merit {
	m := merit{internal: p.PeerASN == uint32(as), preference: defaultPreference}
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeLocalPref:
			m.preference = a.Value
		case *bgp.PathAttributeAsPath:
			for _, part := range a.Value {
				m.length += part.ASLen()
			}
		case *bgp.PathAttributeOrigin:
			m.origin = a.Value
		case *bgp.PathAttributeMultiExitDisc:
			m.med = a.Value
		}
	}
	return m
}
