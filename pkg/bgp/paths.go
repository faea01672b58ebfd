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

// maxWorse is how many paths of a prefix are reported besides the best ones. They matter only if none of the best can be
// used.
const maxWorse = 4

// pathsOf returns the table's paths, which the table has in order of preference, with their ranks, sorted within each rank.
// It returns none if the best one is ours: routes of others to a prefix that we advertise are not used.
func pathsOf(paths []*apiutil.Path, as model.ASNumber) []plan.Path {
	if len(paths) == 0 || !paths[0].Best || !paths[0].PeerAddress.IsValid() {
		return nil
	}
	var all []plan.Path
	rank, worse := 0, 0
	var before merit
	for i, p := range paths {
		if p.Best { // at any position: the library marks best paths by fewer criteria than it sorts by
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

// merit holds the criteria that come before the tie-breakers (RFC 4271, section 9.1.2.2): paths of equal merit are equally
// good to the library (gobgp 4.8, Path.Compare).
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
