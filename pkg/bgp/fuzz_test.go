// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/plan"
)

// FuzzUpdate: from whatever a neighbour sends and the library can parse, only prefixes with next hops that a host can have are learned, and
// paths that have been here are told from others. The byte selects the best path.
func FuzzUpdate(f *testing.F) {
	hop, err := bgp.NewPathAttributeNextHop(netip.MustParseAddr("10.0.0.2"))
	if err != nil {
		f.Fatal(err)
	}
	var many []netip.Prefix
	for i := range 200 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i)}), 24))
	}
	add := func(list []netip.Prefix, hop bgp.PathAttributeInterface) {
		f.Add(updateBody(f, bgp.NewBGPUpdateMessage(nlri(f, many[:3]...), []bgp.PathAttributeInterface{path(65001), hop}, nlri(f, list...))), byte(1))
	}
	add(append(many, netip.MustParsePrefix("0.0.0.0/0")), hop)
	for _, hop := range []string{"fd00::2", "ff02::1", "::", "fe80::1"} {
		reach, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_IPv6_UC, nlri(f, netip.MustParsePrefix("::ffff:10.0.0.0/104"), netip.MustParsePrefix("fd01::/64")), netip.MustParseAddr(hop))
		if err != nil {
			f.Fatal(err)
		}
		add(nil, reach)
	}
	them := netip.MustParseAddr("10.0.0.2")
	f.Fuzz(func(t *testing.T, body []byte, best byte) {
		m, err := bgp.ParseBGPBody(&bgp.BGPHeader{Type: bgp.BGP_MSG_UPDATE, Len: uint16(bgp.BGP_HEADER_LENGTH + len(body))}, body)
		if err != nil || len(body) > bgp.BGP_MAX_MESSAGE_LENGTH {
			return
		}
		update := m.Body.(*bgp.BGPUpdate)
		announced := update.NLRI
		for _, a := range update.PathAttributes {
			if reach, ok := a.(*bgp.PathAttributeMpReachNLRI); ok {
				announced = slices.Concat(announced, reach.Value)
			}
		}
		(&running{speaker: plan.Speaker{AS: 64512, RouterID: them}}).returned(update.PathAttributes)
		var l learned
		for _, n := range announced {
			p, ok := prefixOf(n.NLRI)
			if !ok {
				continue
			}
			var paths []*apiutil.Path
			for i := range byte(8) {
				paths = append(paths, &apiutil.Path{Nlri: n.NLRI, Attrs: update.PathAttributes, PeerAddress: them, Best: best>>i&1 == 1})
			}
			got := pathsOf(paths, 64512)
			l.set([]plan.Learned{{Prefix: p, Paths: got}})
			bad := slices.ContainsFunc(got, func(p plan.Path) bool {
				return !p.NextHop.IsGlobalUnicast() && !p.NextHop.IsLinkLocalUnicast() || p.NextHop.Is4In6()
			})
			if p != p.Masked() || !p.IsValid() || bad || len(got) > len(paths) || len(l.routes) > len(announced) {
				t.Fatalf("%v: %v", p, got)
			}
		}
	})
}

func updateBody(f *testing.F, m *bgp.BGPMessage) []byte {
	f.Helper()
	data, err := m.Serialize()
	if err != nil {
		f.Fatal(err)
	}
	return data[bgp.BGP_HEADER_LENGTH:]
}
