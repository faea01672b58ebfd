// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// TestRanks: in a table's order, a path marked as best may follow one that isn't.
func TestRanks(t *testing.T) {
	path := func(last byte, best bool, med uint32) *apiutil.Path {
		hop := netip.AddrFrom4([4]byte{10, 0, 0, last})
		attr, err := bgp.NewPathAttributeNextHop(hop)
		if err != nil {
			t.Fatal(err)
		}
		return &apiutil.Path{
			PeerAddress: hop, PeerASN: 65000 + uint32(last), Best: best,
			Attrs: []bgp.PathAttributeInterface{attr, bgp.NewPathAttributeMultiExitDisc(med)},
		}
	}
	var got [][2]int
	for _, p := range pathsOf([]*apiutil.Path{path(1, true, 0), path(2, false, 10), path(3, true, 0), path(4, false, 20), path(5, false, 20)}, 64512) {
		got = append(got, [2]int{int(p.NextHop.As4()[3]), p.Rank})
	}
	if diff := cmp.Diff([][2]int{{1, 0}, {3, 0}, {2, 1}, {4, 3}, {5, 3}}, got); diff != "" {
		t.Errorf("next hops and ranks (-want +got):\n%s", diff)
	}
	if got := pathsOf([]*apiutil.Path{path(1, false, 0)}, 64512); len(got) > 0 {
		t.Errorf("without a best one: %v", []plan.Path(got))
	}
}

// TestSends: conditions of filters on what this host advertises.
func TestSends(t *testing.T) {
	a := plan.Advertisement{Prefix: netip.MustParsePrefix("10.1.1.0/26")}
	communities := []model.Community{{CIDR: netip.MustParsePrefix("10.1.1.0/24"), Value: "64512:1"}, {CIDR: netip.MustParsePrefix("10.2.0.0/16"), Value: "64512:2"}}
	for _, tc := range []struct {
		reject model.RouteFilter
		want   bool
	}{
		{model.RouteFilter{}, false}, {model.RouteFilter{Community: "64512:1"}, false}, {model.RouteFilter{Community: "64512:2"}, true},
		{model.RouteFilter{Learned: true}, true}, {model.RouteFilter{ASPath: "64512"}, true},
		{model.RouteFilter{CIDR: netip.MustParsePrefix("10.1.0.0/16"), Match: model.MatchIn, Max: 25}, true},
		{model.RouteFilter{CIDR: netip.MustParsePrefix("10.1.0.0/16")}, false},
	} {
		tc.reject.Action = "reject"
		n := plan.Neighbour{Address: netip.MustParseAddr("192.0.2.1"), Export: []model.RouteFilter{tc.reject}}
		if got := sends(n, a, communities); got != tc.want {
			t.Errorf("%s: %v", tc.reject, got)
		}
	}
}
