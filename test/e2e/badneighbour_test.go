// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/routing"
)

// fabricV4 is the fabric's own address, from which the bad neighbour speaks.
const fabricV4 = "172.20.0.1"

// badNeighbour is BIRD's configuration of a session with host a, which takes it for
// AS 65010.
func badNeighbour(as int, password, routes string) string {
	return fmt.Sprintf(`router id %[1]s;
protocol static { ipv4; %[4]s }
protocol bgp a {
	local %[1]s as %[2]d; neighbor 172.20.1.1 as 64512;
	password "%[3]s"; hold time 9; connect delay time 1; connect retry time 1; error wait time 1, 2;
	ipv4 { import all; export all; };
}
`, fabricV4, as, password, routes)
}

// TestBadNeighbours has a neighbour of host a make every mistake that there
// are: what it does is named in the log, in a metric and at /debug/state, and pods
// talk on, on their host and across. docs/routing.md says what comes of each.
func TestBadNeighbours(t *testing.T) {
	r := routing.New(t, lab.Config{Hosts: []string{"a", "b"}, AgentEnv: []string{"FELIX_BGPMAXPREFIXES=5000"}})
	a, b := r.Host("a"), r.Host("b")
	here, near, far := a.Pod("here"), a.Pod("near"), b.Pod("far")
	r.Reaches(here, near, far)
	for _, h := range r.Hosts() {
		r.Established(h, 2)
	}
	ip := netip.MustParseAddr(fabricV4)
	r.Put(model.Put{Key: model.BGPPeerKey{Host: "a", IP: ip}, Value: model.BGPPeer{
		IP: ip, AS: 65010, PasswordFile: passwordFile(t, secret),
		Import: []model.RouteFilter{ // all is let in that the agent doesn't refuse by itself
			{CIDR: netip.MustParsePrefix("0.0.0.0/0"), Action: "accept"},
		},
	}})
	before := r.Routes(a)
	bird := routing.StartBIRD(t, r.Fabric(), badNeighbour(65010, secret, "route 10.99.0.0/24 unreachable;"))
	r.Established(a, 3)
	r.Until("its route", func() error { return has(r, a, "10.99.0.0/24 via "+fabricV4) })
	named := func(state, kind string) {
		t.Helper()
		r.Counts(a, `calico_node_bgp_peers{state="`+state+`"}`, routing.AtLeast(1))
		r.Counts(a, `calico_node_bgp_troubles{kind="`+kind+`"}`, routing.AtLeast(1))
	}
	blocks := func(h *lab.Host) (list []string) {
		for _, p := range r.Blocks(h) {
			if p.Addr().Is4() {
				list = append(list, p.String())
			}
		}
		return list
	}
	for _, part := range []struct {
		name   string
		config string
		check  func(t *testing.T)
	}{
		{"wrong AS", badNeighbour(65011, secret, ""), func(t *testing.T) {
			r.Says(a, "BGP session failed", "neighbour="+fabricV4, "it is not in AS 65010")
			r.Counts(a, `calico_node_bgp_troubles{kind="as-number"}`, routing.AtLeast(1))
			r.Established(a, 2)
		}},
		{"wrong password", badNeighbour(65010, "another", ""), func(t *testing.T) {
			r.Says(a, "BGP session", "neighbour="+fabricV4, "password is not the one in")
			named("connecting", "password")
			r.Established(a, 2)
		}},
		{"our blocks and a default route", badNeighbour(65010, secret, fmt.Sprintf(
			"route 0.0.0.0/0 unreachable; route %s unreachable; route %s unreachable; route 172.20.0.0/16 unreachable;"+
				"route 172.20.1.0/24 unreachable; route %s/32 unreachable; route 172.20.0.11/32 unreachable;",
			blocks(a)[0], blocks(b)[0], b.IPv4())), func(t *testing.T) {
			r.Established(a, 3)
			r.Counts(a, `calico_node_route_problems{kind="refused-route"}`, routing.AtLeast(1))
			for _, prefix := range []string{"172.20.0.0/16", "172.20.1.0/24", b.IPv4().String() + "/32", "172.20.0.11/32"} {
				r.Says(a, "routes to other hosts are not in order", "kind=refused-route", "subject="+prefix, "neighbour "+fabricV4)
			}
			for _, prefix := range []string{"0.0.0.0/0", blocks(a)[0]} {
				r.Says(a, "BGP neighbour sends a route that is not taken", "neighbour="+fabricV4, "prefix="+prefix, "reason=")
			}
			r.Counts(a, "calico_node_bgp_refused_prefixes", routing.Exactly(2))
		}},
		{"100,000 prefixes", badNeighbour(65010, secret, manyRoutes(100_000)), func(t *testing.T) {
			r.Says(a, "BGP neighbour floods", "neighbour="+fabricV4)
			named("flooded", "flood")
		}},
	} {
		t.Run(part.name, func(t *testing.T) {
			local, across := routing.StartTraffic(t, here, near, false), routing.StartTraffic(t, here, far, false)
			bird.Configure(part.config)
			part.check(t)
			if state := r.State(a); !strings.Contains(state, fabricV4) {
				t.Errorf("the state doesn't show the neighbour:\n%s", state)
			}
			r.Until("the routes of before", func() error {
				got := r.Routes(a)
				for _, route := range before {
					if !slices.Contains(got, route) {
						return fmt.Errorf("%s is not among %d", route, len(got))
					}
				}
				if len(got) > len(before) {
					return fmt.Errorf("there are others: %.80q, before %q", got, before)
				}
				return nil
			})
			local.StopWhole()
			across.StopWhole()
		})
	}
	r.Delete(model.BGPPeerKey{Host: "a", IP: ip})
	r.Established(a, 2)
	r.Counts(a, "calico_node_bgp_refused_prefixes", routing.Exactly(0))
	r.Until("the routes of before, and no other", func() error {
		if got := r.Routes(a); !slices.Equal(got, before) {
			return fmt.Errorf("there are %.300q, before %q", got, before)
		}
		return nil
	})
}

func has(r *routing.Rig, h *lab.Host, route string) error {
	for _, line := range r.Routes(h) {
		if strings.HasPrefix(line, route) {
			return nil
		}
	}
	return fmt.Errorf("no %s in %q", route, r.Routes(h))
}

// manyRoutes are that many, as BIRD's configuration has them.
func manyRoutes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "route 10.%d.%d.%d/32 unreachable;\n", i>>16, i>>8&255, i&255)
	}
	return b.String()
}
