// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
)

// shapes returns routes to a prefix, one of each possible form.
func shapes(dst netip.Prefix) map[string]plan.Route {
	hop := func(n int) plan.Hop {
		if dst.Addr().Is4() {
			return plan.Hop{Gateway: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), Device: "up0"}
		}
		return plan.Hop{Gateway: netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", n)), Device: "up0"}
	}
	onlink := hop(9)
	onlink.OnLink = true
	if dst.Addr().Is4() {
		onlink.Gateway = netip.MustParseAddr("198.51.100.7")
	}
	source := netip.MustParseAddr("192.0.2.1")
	if dst.Addr().Is6() {
		source = netip.MustParseAddr("2001:db8::1")
	}
	return map[string]plan.Route{
		"blackhole": {Destination: dst, Kind: plan.Blackhole},
		"one hop":   {Destination: dst, Kind: plan.Unicast, Hops: []plan.Hop{hop(2)}},
		"other hop": {Destination: dst, Kind: plan.Unicast, Hops: []plan.Hop{hop(3)}},
		"on link":   {Destination: dst, Kind: plan.Unicast, Hops: []plan.Hop{onlink}},
		"source":    {Destination: dst, Kind: plan.Unicast, Hops: []plan.Hop{hop(2)}, Source: source},
		"two hops":  {Destination: dst, Kind: plan.Unicast, Hops: []plan.Hop{hop(2), hop(3)}},
		"three hops": {Destination: dst, Kind: plan.Unicast, Hops: []plan.Hop{hop(3), hop(4),
			{Gateway: onlink.Gateway, Device: "up0", OnLink: true}}},
	}
}

// TestRouteComesBack: a route that is desired through a missing device is removed, and comes back at once when it is desired as before.
func TestRouteComesBack(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		f := newFabric(t)
		dst := netip.MustParsePrefix("10.65.7.0/26")
		straight := shapes(dst)["source"]
		nowhere := plan.Route{Destination: dst, Kind: plan.Unicast, Hops: []plan.Hop{{Gateway: netip.MustParseAddr("192.0.2.2"), Device: "tunl0", OnLink: true}}}
		mustHold(t, f, plan.State{Routes: map[netip.Prefix]plan.Route{dst: straight}})
		for _, whole := range []bool{false, true} {
			changes := plan.Changes{Routes: map[netip.Prefix]*plan.Route{dst: &nowhere}}
			if whole {
				changes.Devices = &plan.Devices{}
			}
			r, err := f.ApplySome(context.Background(), changes)
			if err != nil || len(r.Problems) != 1 {
				t.Fatalf("whole=%v: %+v, %v", whole, r, err)
			}
			if held := heldByFabric(t); len(held) > 0 {
				t.Errorf("whole=%v: %q", whole, held)
			}
			r = mustHoldSome(t, f, plan.Changes{Routes: map[netip.Prefix]*plan.Route{dst: &straight}})
			if held := heldByFabric(t); len(held) != 1 || r.Writes != 1 || r.Repairs != 0 {
				t.Errorf("whole=%v: back with %d writes, %d of them repairs: %q", whole, r.Writes, r.Repairs, held)
			}
		}
	})
}

// TestRefusedReplacement covers routes whose replacement the kernel refuses: a route with other hops than desired is removed; one with some
// of them or none stays, and is replaced or deleted later like any other.
func TestRefusedReplacement(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		hop := func(a string) plan.Hop { return plan.Hop{Gateway: netip.MustParseAddr(a), Device: "up0"} }
		bad := map[bool]plan.Hop{true: hop("203.0.113.1"), false: hop("fd99::1")}
		for dst, good := range map[string]string{"10.65.7.0/26": "192.0.2.2", "fd00:7::/122": "2001:db8::2"} {
			dst := netip.MustParsePrefix(dst)
			route := func(hops ...plan.Hop) *plan.Route {
				return &plan.Route{Destination: dst, Kind: plan.Unicast, Hops: hops}
			}
			former, refused := hop(good), bad[dst.Addr().Is4()]
			nowhere := &plan.Route{Destination: dst, Kind: plan.Blackhole}
			for _, c := range []struct {
				name        string
				first, next *plan.Route
				left        int
			}{
				{"another", route(former), route(refused), 0},
				{"one more", route(former), route(former, refused), 1},
				{"after a blackhole", nowhere, route(refused), 1},
			} {
				for _, whole := range []bool{false, true} {
					f := newFabric(t)
					st := plan.State{Routes: map[netip.Prefix]plan.Route{dst: *c.first}}
					mustHold(t, f, st)
					before := heldByFabric(t)
					var r Report
					var err error
					for range 2 {
						if whole {
							st.Routes[dst] = *c.next
							r, err = f.Apply(context.Background(), st)
						} else {
							r, err = f.ApplySome(context.Background(), plan.Changes{Routes: map[netip.Prefix]*plan.Route{dst: c.next}})
						}
						if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Err.Error(), refused.Gateway.String()) {
							t.Fatalf("%s, %s, whole=%v: %+v, %v", dst, c.name, whole, r, err)
						}
						if held := heldByFabric(t); !slices.Equal(held, before[:c.left]) {
							t.Errorf("%s, %s, whole=%v: left %q", dst, c.name, whole, held)
						}
					}
					mustHoldSome(t, f, plan.Changes{Routes: map[netip.Prefix]*plan.Route{dst: nil}})
					if held := heldByFabric(t); len(held) > 0 {
						t.Errorf("%s, %s: left when it is gone: %q", dst, c.name, held)
					}
					mustHold(t, f, plan.State{})
				}
			}
		}
	})
}

// TestRouteShapes: every form of a route replaces every other, leaves nothing of it behind, and is recognised by another Fabric, which
// writes nothing.
func TestRouteShapes(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		destinations := []netip.Prefix{netip.MustParsePrefix("10.65.7.0/26"), netip.MustParsePrefix("fd00:8::1/128"),
			netip.MustParsePrefix("10.65.8.1/32"), netip.MustParsePrefix("fd00:7::/122")}
		if testing.Short() {
			destinations = destinations[:2]
		}
		for _, dst := range destinations {
			f := newFabric(t)
			mustHold(t, f, plan.State{})
			forms := shapes(dst)
			for from, a := range forms {
				for to, b := range forms {
					for _, some := range []bool{false, true} {
						apply := func(r *plan.Route) Report {
							if some {
								return mustHoldSome(t, f, plan.Changes{Routes: map[netip.Prefix]*plan.Route{dst: r}})
							}
							st := plan.State{Routes: map[netip.Prefix]plan.Route{}}
							if r != nil {
								st.Routes[dst] = *r
							}
							return mustHold(t, f, st)
						}
						apply(&a)
						r := apply(&b)
						if want := btoi(from != to); r.Writes != want || r.Repairs != 0 {
							t.Errorf("%s: %s after %s, some=%v: %d writes, %d repairs; want %d, 0", dst, to, from, some, r.Writes, r.Repairs, want)
						}
						again := newFabric(t)
						if r := mustHold(t, again, plan.State{Routes: map[netip.Prefix]plan.Route{dst: b}}); r.Writes != 0 {
							t.Errorf("%s: %s after %s, some=%v: another made %d writes: %q", dst, to, from, some, r.Writes, heldByFabric(t))
						}
						apply(nil)
						if held := heldByFabric(t); len(held) > 0 {
							t.Errorf("%s: after %s is gone: %q", dst, to, held)
						}
					}
				}
			}
			f.Close()
		}
	})
}

// TestFabricProblems: what a Fabric can't have is a problem that names it; the rest is programmed.
func TestFabricProblems(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		netns.IP(t, "link", "add", "vxlan.calico", "type", "bridge")
		netns.IP(t, "route", "add", "10.1.0.0/16", "dev", "up0", "proto", "12", "metric", "32")
		netns.IP(t, "link", "add", "down0", "type", "veth", "peer", "name", "down1")
		route := func(dst string, hops ...plan.Hop) plan.Route {
			return plan.Route{Destination: netip.MustParsePrefix(dst), Kind: plan.Unicast, Hops: hops}
		}
		good := plan.Hop{Gateway: netip.MustParseAddr("192.0.2.2"), Device: "up0"}
		st := plan.State{
			Tunnels: []plan.Tunnel{{Kind: plan.VXLAN4, Device: "vxlan.calico", VNI: 1, Port: 4789}},
			Routes:  make(map[netip.Prefix]plan.Route),
		}
		noSource := route("10.9.0.0/16", good)
		noSource.Source = netip.MustParseAddr("203.0.113.1")
		for _, r := range []plan.Route{
			route("10.1.0.0/16", good),
			route("10.2.0.0/16", good, plan.Hop{Gateway: netip.MustParseAddr("192.0.2.3"), Device: "gone0"}),
			route("10.3.0.0/16", plan.Hop{Gateway: netip.MustParseAddr("192.0.2.3"), Device: "down0"}),
			route("10.4.0.0/16"),
			route("10.5.0.0/16", plan.Hop{Gateway: netip.MustParseAddr("203.0.113.1"), Device: "up0"}),
			route("fd06::/64", plan.Hop{Gateway: netip.MustParseAddr("192.0.2.3"), Device: "up0"}),
			route("10.7.0.1/16", good),
			route("10.8.0.0/16", plan.Hop{Gateway: netip.MustParseAddr("192.0.2.3"), Device: "a/b"}),
			noSource,
		} {
			st.Routes[r.Destination] = r
		}
		want := []string{
			"10.1.0.0/16: there is a route that is not ours and comes first, of protocol 12 and metric 32: delete it with `ip route del 10.1.0.0/16 proto 12`",
			"10.2.0.0/16: interface gone0 is not there",
			"10.3.0.0/16: interface down0 is down",
			"10.4.0.0/16: it has no next hop",
			"10.5.0.0/16: set route 10.5.0.0/16 via 203.0.113.1 dev up0: network is unreachable",
			"10.7.0.1/16: 10.7.0.1/16 is not a prefix that can be routed",
			"10.8.0.0/16: interface a/b is not there",
			"10.9.0.0/16: source address 203.0.113.1 is not this host's: the route is without",
			"fd06::/64: next hop 192.0.2.3 is not of the family of fd06::/64",
			"vxlan.calico: there is a link vxlan.calico of kind \"bridge\" that is not ours: rename or delete it",
		}
		texts := func(r Report) []string {
			var got []string
			for _, p := range r.Problems {
				got = append(got, p.Subject+": "+p.Err.Error())
			}
			return got
		}
		f := newFabric(t)
		for range 2 {
			r, err := f.Apply(context.Background(), st)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, texts(r)); diff != "" {
				t.Errorf("Apply (-want +got):\n%s", diff)
			}
		}
		g := newFabric(t)
		mustHold(t, g, plan.State{})
		changes := plan.Changes{Routes: make(map[netip.Prefix]*plan.Route)}
		for p, r := range st.Routes {
			changes.Routes[p] = &r
		}
		r, err := g.ApplySome(context.Background(), changes)
		if err != nil {
			t.Fatal(err)
		}
		// That a foreign route comes first is for Apply to see.
		if diff := cmp.Diff(want[1:len(want)-1], texts(r)); diff != "" {
			t.Errorf("ApplySome (-want +got):\n%s", diff)
		}
		held := heldByFabric(t)
		if !slices.ContainsFunc(held, func(l string) bool { return strings.HasPrefix(l, "10.2.0.0/16 via 192.0.2.2") }) {
			t.Errorf("the hop that there is has no route: %q", held)
		}
		netns.IP(t, "link", "show", "vxlan.calico", "type", "bridge") // is still there
	})
}

// TestVXLANTaken: if a VXLAN can't be created because something else has its VNI or its port, the problem says what that is, and what to
// do.
func TestVXLANTaken(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		local := netip.MustParseAddr("192.0.2.1")
		st := plan.State{Tunnels: []plan.Tunnel{
			{Kind: plan.VXLAN4, Device: link.VXLAN4, VNI: 1, Port: 4789, Local: local, Parent: "up0"},
			{Kind: plan.VXLAN6, Device: link.VXLAN6, VNI: 1, Port: 4789, Local: netip.MustParseAddr("2001:db8::1"), Parent: "up0"},
		}}
		f := newFabric(t)
		problem := func(want string) {
			t.Helper()
			var got string
			for range 2 {
				r, err := f.Apply(context.Background(), st)
				if err != nil {
					t.Fatal(err)
				}
				got = ""
				for _, p := range r.Problems {
					got += p.Subject + ": " + p.Err.Error()
				}
			}
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		netns.IP(t, "link", "add", "theirs", "type", "vxlan", "id", "1", "dstport", "4789", "local", "192.0.2.1", "dev", "up0")
		problem("vxlan.calico: make the device: file exists: " +
			"link theirs has VNI 1 and port 4789: delete it, or set VXLANVNI or VXLANPort for all hosts")
		netns.IP(t, "link", "del", "theirs")
		problem("")
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 4790})
		if err != nil {
			t.Fatal(err)
		}
		st.Tunnels = st.Tunnels[:1]
		st.Tunnels[0].Port = 4790
		problem("vxlan.calico: bring up: address already in use: something else has UDP port 4790: see `ss -lunp sport = :4790` " +
			"and `ip -d link show type vxlan`, and stop it, or set VXLANPort for all hosts")
		conn.Close()
		problem("")
	})
}

// TestTunnelTooSmall: what the kernel refuses for a tunnel is reported once, though it is retried at each change of the tunnel.
func TestTunnelTooSmall(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		f, tunnel := newFabric(t), plan.Tunnel{
			Kind: plan.VXLAN6, Device: link.VXLAN6, VNI: 1, Port: 4789, Local: netip.MustParseAddr("2001:db8::1"), Parent: "up0",
			Addr: netip.MustParseAddr("fd00:65::"), MTU: 1400,
		}
		mustHold(t, f, plan.State{Tunnels: []plan.Tunnel{tunnel}})
		tunnel.MTU = 1270 // less than IPv6 needs
		for _, when := range []string{"as the MTU shrinks", "later"} {
			r, err := f.Apply(context.Background(), plan.State{Tunnels: []plan.Tunnel{tunnel}})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Problems) != 1 || r.Problems[0].Err.Error() != "add address fd00:65::/128: invalid argument" {
				t.Errorf("%s: %v", when, r.Problems)
			}
		}
	})
}
