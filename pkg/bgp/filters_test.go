// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bgp

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// TestBGPFilters: the rules of filters decide about what BIRD sends over both families, and what a reflector passes on to it
// of its own routes and of those of another BIRD, its client.
func TestBGPFilters(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	rr, top, leaf := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	b := top.startBIRD(t, `
protocol static { ipv4;
	route 10.1.8.0/24 unreachable { bgp_community.add((65001,7)); };
	route 10.1.9.0/24 unreachable { bgp_large_community.add((65001,0,7)); };
	route 10.1.10.0/24 unreachable { bgp_path.prepend(65005); };
	route 10.1.11.0/24 unreachable; route 10.1.12.0/27 unreachable; route 10.2.0.0/16 unreachable; route 10.3.1.0/24 unreachable; }
protocol static { ipv6; route fd01:0:0:8::/64 unreachable; route fd01:0:0:9::/64 unreachable; }
protocol bgp v4 { local 10.0.0.2 as 65001; neighbor 10.0.0.1 as 64512; connect retry time 2; ipv4 { import all; export where source = RTS_STATIC; }; }
protocol bgp v6 { local fd00::2 as 65001; neighbor fd00::1 as 64512; connect retry time 2; ipv6 { import all; export where source = RTS_STATIC; }; }
`)
	leaf.startBIRD(t, `
protocol static { ipv4; route 10.1.4.0/26 unreachable { bgp_path.prepend(65009); }; route 10.1.5.0/26 unreachable; }
protocol bgp v4 { local 10.0.0.3 as 64512; neighbor 10.0.0.1 as 64512; connect retry time 2; ipv4 { import all; export where source = RTS_STATIC; }; }
`)
	d := rr.desired()
	d.Speaker.ClusterID = netip.MustParseAddr("1.0.0.1")
	d.Speaker.Communities = []model.Community{{CIDR: prefix("10.1.1.64/26"), Value: "64512:100"}}
	client := rr.meets(d, leaf)
	client.Kind, client.Host, client.Client = plan.FromOwn, "", true
	d.Neighbours[client.Address] = client
	rule := func(action string, f model.RouteFilter) model.RouteFilter { f.Action = action; return f }
	in := func(cidr string, match model.MatchOperator, least, most int) model.RouteFilter {
		return model.RouteFilter{CIDR: prefix(cidr), Match: match, Min: least, Max: most}
	}
	n := rr.outside(d, top, 65001)
	n.Import = []model.RouteFilter{
		rule("reject", model.RouteFilter{Community: "65001:7"}), rule("reject", model.RouteFilter{Community: "65001:0:7"}),
		rule("reject", model.RouteFilter{ASPath: "65001 65005"}), rule("accept", in("10.2.0.0/15", model.MatchIn, 16, 16)),
		rule("reject", in("10.1.0.0/16", model.MatchNotIn, 24, 26)),
	}
	n.Export = []model.RouteFilter{
		rule("reject", model.RouteFilter{ASPath: "64512"}), // what the session itself prepends isn't meant
		rule("accept", model.RouteFilter{ASPath: "65009"}), rule("reject", model.RouteFilter{Learned: true}),
		rule("reject", model.RouteFilter{Community: "64512:100"}),
	}
	n6 := n
	n6.Address, n6.Local = top.v6, rr.v6
	n6.Import = []model.RouteFilter{rule("reject", in("fd01:0:0:8::/64", model.MatchEqual, 0, 0))}
	n6.Export = []model.RouteFilter{rule("reject", in("fd01:0:0:1::/64", model.MatchIn, 0, 122))}
	d.Neighbours[n.Address], d.Neighbours[n6.Address] = n, n6
	rr.has(d, "10.1.1.0/26", "10.1.1.64/26", "fd01:0:0:1::/122", "fd01:0:0:2::/122")
	s := rr.start(t)
	s.apply(d)
	clients := []string{"10.1.4.0/26 via 10.0.0.3", "10.1.5.0/26 via 10.0.0.3"}
	s.mustLearn(clients[0], clients[1], "10.1.11.0/24 via 10.0.0.2", "10.2.0.0/16 via 10.0.0.2", "fd01:0:0:9::/64 via fd00::2")
	b.mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.4.0/26 via 10.0.0.3", "fd01:0:0:2::/122 via fd00::1")
	before := s.look().Status

	// Others take effect in the same sessions. Without rules it is as without filters.
	n.Import = []model.RouteFilter{rule("reject", in("10.1.11.0/24", model.MatchNotEqual, 0, 0))}
	n.Export = []model.RouteFilter{rule("reject", model.RouteFilter{})}
	n6.Import, n6.Export = nil, nil
	d.Neighbours[n.Address], d.Neighbours[n6.Address] = n, n6
	s.apply(d)
	s.mustLearn(clients[0], clients[1], "10.1.11.0/24 via 10.0.0.2", "fd01:0:0:8::/64 via fd00::2", "fd01:0:0:9::/64 via fd00::2")
	b.mustLearn("fd01:0:0:1::/122 via fd00::1", "fd01:0:0:2::/122 via fd00::1")
	sameSessions(t, before, s.look().Status)
}
