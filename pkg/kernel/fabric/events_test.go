// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// fabricBreakages are changes that another program may make on host 1 of two.
func fabricBreakages() [][]string {
	return [][]string{
		{"ip", "route", "del", "10.65.2.0/24"},
		{"ip", "-6", "route", "del", "fd00:2::/64"},
		{"ip", "route", "del", "blackhole", "10.65.1.0/24"},
		{"ip", "route", "add", "10.65.77.0/24", "via", "192.0.2.2", "dev", "eth0", "proto", "81", "metric", "1100"},
		{"ip", "route", "add", "10.65.2.0/24", "via", "192.0.2.2", "dev", "eth0", "proto", "81"},
		{"ip", "neigh", "replace", "192.0.2.2", "dev", "vxlan.calico", "lladdr", "02:00:00:00:00:99", "nud", "permanent"},
		{"ip", "neigh", "del", "192.0.2.2", "dev", "vxlan.calico"},
		{"ip", "neigh", "add", "192.0.2.77", "dev", "vxlan.calico", "lladdr", "02:00:00:00:00:99", "nud", "permanent"},
		{"bridge", "fdb", "replace", "66:04:00:00:00:02", "dev", "vxlan.calico", "dst", "192.0.2.77", "self", "permanent"},
		{"bridge", "fdb", "del", "66:06:00:00:00:02", "dev", "vxlan-v6.calico", "self"},
		{"bridge", "fdb", "add", "66:04:00:00:00:99", "dev", "vxlan.calico", "dst", "192.0.2.77", "self", "permanent"},
		{"ip", "link", "set", "vxlan.calico", "mtu", "1400"},
		{"ip", "link", "set", "vxlan.calico", "down"},
		{"ip", "link", "set", "vxlan-v6.calico", "down"},
		{"ip", "link", "set", "vxlan.calico", "address", "66:04:00:00:00:99"},
		{"ip", "link", "set", "vxlan.calico", "alias", "mine"},
		{"ip", "link", "set", "vxlan.calico", "type", "vxlan", "learning"},
		{"ip", "link", "set", "vxlan.calico", "type", "vxlan", "local", "192.0.2.99"},
		{"ip", "link", "del", "vxlan.calico"},
		{"ip", "link", "del", "vxlan-v6.calico"},
		{"ip", "addr", "del", "10.65.1.0/32", "dev", "vxlan.calico"},
		{"ip", "addr", "add", "10.65.1.9/32", "dev", "vxlan.calico"},
		{"ip", "addr", "del", "fd00:1::/128", "dev", "vxlan-v6.calico"},
		{"ip", "link", "set", "eth0", "down"}, // comes up again below
	}
}

// signalled waits for a signal.
func signalled(tb testing.TB, signals <-chan struct{}, what any) {
	tb.Helper()
	eventually.Find(tb, fmt.Sprintf("a signal of %q", what), signals, func(struct{}) bool { return true })
}

// settleFabric applies until no signal is left of earlier changes. A link of its own shows when all earlier events have arrived.
func settleFabric(tb testing.TB, signals <-chan struct{}) {
	tb.Helper()
	netns.IP(tb, "link", "set", "lo", "mtu", "60000")
	signalled(tb, signals, "the MTU of lo")
	netns.IP(tb, "link", "set", "lo", "mtu", "65536")
	signalled(tb, signals, "the MTU of lo")
}

// TestFightIsSaidOnce: a fight is reported once, not with each repair.
func TestFightIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	f := &Fabric{cfg: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	for range 5 {
		p := newPass(f)
		for _, what := range []string{"set route to 10.0.0.0/24", "set route to 10.0.1.0/24"} {
			p.do(&change{what: what, drifted: true, make: func() error { return nil }})
		}
		p.logRepairs()
	}
	if got := log.String(); strings.Count(got, "repaired") != 1 || !strings.Contains(got, `changes=2 first="set route to 10.0.0.0/24"`) {
		t.Errorf("want one line:\n%s", got)
	}
}

// endsAfter is a context that ends after it was asked this many times.
type endsAfter struct {
	context.Context
	asked int
}

func (e *endsAfter) Err() error {
	if e.asked--; e.asked < 0 {
		return context.Canceled
	}
	return nil
}

// TestRepairsOfACutPass: the repairs of an interrupted pass are reported too.
func TestRepairsOfACutPass(t *testing.T) {
	netns.Host(t, func() {
		f := newFabric(t)
		var log bytes.Buffer
		f.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		st := plan.State{Routes: map[netip.Prefix]plan.Route{}}
		for n := range 10 {
			dst := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, byte(n)}), 24)
			st.Routes[dst] = plan.Route{Destination: dst, Kind: plan.Blackhole}
		}
		mustHold(t, f, st)
		netns.IP(t, "route", "flush", "proto", "81")
		if _, err := f.Apply(&endsAfter{t.Context(), 5}, st); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, want that the context ended after some changes", err)
		}
		if got := log.String(); !strings.Contains(got, "changes=4 ") {
			t.Errorf("want the 4 changes told:\n%s", got)
		}
	})
}

// TestFabricRepairs: what another program changes is repaired and, except for neighbours and forwarding entries, signalled.
func TestFabricRepairs(t *testing.T) {
	netns.Host(t, func() {
		hosts := virtualHosts(t, 2)
		v := hosts[0]
		mustHold(t, hosts[1].fabric, hosts[1].vxlanState(hosts))
		st := v.vxlanState(hosts)
		netns.Within(t, v.ns, func() {
			mustHold(t, v.fabric, st)
			mustHold(t, v.fabric, st)
			right := withoutIndices(heldByFabric(t))
			ctx, cancel := context.WithCancel(context.Background())
			signals, err := v.fabric.Subscribe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range fabricBreakages() {
				settleFabric(t, signals)
				command(t, args...)
				if entry := args[1] == "neigh" || args[0] == "bridge"; !entry { // of these nothing is told
					signalled(t, signals, args)
				}
				if args[3] == "eth0" && args[4] == "down" {
					command(t, "ip", "link", "set", "eth0", "up")
					pods.AwaitSettled(t, "eth0")
					command(t, "ip", "addr", "add", v.addr6().String()+"/64", "dev", "eth0", "nodad")
					netns.IP(t, "route", "add", "default", "via", "192.0.2.254")
				}
				r := mustHold(t, v.fabric, st)
				if r.Repairs == 0 && args[3] != "eth0" {
					t.Errorf("%q: %d writes, %d repairs", args, r.Writes, r.Repairs)
				}
				if diff := cmp.Diff(right, withoutIndices(heldByFabric(t))); diff != "" {
					t.Errorf("%q: after the repair (-want +got):\n%s", args, diff)
				}
				if r := mustHold(t, v.fabric, st); r.Writes != 0 {
					t.Errorf("%q: a second Apply made %d writes", args, r.Writes)
				}
				pods.Ping(t, v.pod, hosts[1].pod4())
				pods.Ping(t, v.pod, hosts[1].pod6())
			}
			cancel()
			for range signals { // closed in the end
			}
		})
	})
	netns.NoLeaks(t)
}

// TestFabricSignalsHostRoutes: the host's own routes say how next hops are reached. Each change of them is signalled, and no change of
// workloads' routes.
func TestFabricSignalsHostRoutes(t *testing.T) {
	netns.Host(t, func() {
		v := virtualHosts(t, 2)[0]
		netns.Within(t, v.ns, func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			signals, err := v.fabric.Subscribe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"route", "add", "198.51.100.0/24", "via", "192.0.2.2"},
				{"route", "replace", "198.51.100.0/24", "via", "192.0.2.3"},
				{"route", "del", "198.51.100.0/24"},
				{"route", "add", "198.51.100.0/24", "nexthop", "via", "192.0.2.2", "nexthop", "via", "192.0.2.3"},
				{"route", "del", "198.51.100.0/24"},
				{"-6", "route", "add", "2001:db8:1::/64", "via", "2001:db8::2", "proto", "bird"},
				{"-6", "route", "del", "2001:db8:1::/64"},
				{"route", "replace", "default", "via", "192.0.2.2"},
			} {
				settleFabric(t, signals)
				netns.IP(t, args...)
				signalled(t, signals, args)
			}
			settleFabric(t, signals)
			netns.IP(t, "route", "add", "10.65.1.99/32", "dev", "eth0", "proto", "80")
			netns.IP(t, "route", "add", "198.51.100.0/24", "via", "192.0.2.2", "table", "99")
			netns.IP(t, "link", "set", "lo", "mtu", "60000") // the last of all
			signalled(t, signals, "the MTU of lo")
			select {
			case <-signals:
				t.Error("a workload's route, or one of another table, was signalled")
			default:
			}
		})
	})
}

// TestFabricDoesNotSignalItself: a Fabric doesn't signal its own changes to routes, neighbours and forwarding entries.
func TestFabricDoesNotSignalItself(t *testing.T) {
	netns.Host(t, func() {
		hosts := virtualHosts(t, 2)
		v := hosts[0]
		st := v.vxlanState(hosts)
		netns.Within(t, v.ns, func() {
			mustHold(t, v.fabric, st)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			signals, err := v.fabric.Subscribe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			id := plan.RemoteID{Tunnel: plan.VXLAN4, Outer: netip.MustParseAddr("192.0.2.3")}
			remote := plan.Remote{RemoteID: id, Host: "host3", Gateway: id.Outer, MAC: mac("66:04:00:00:00:03")}
			dst := netip.MustParsePrefix("10.65.3.0/24")
			route := plan.Route{Destination: dst, Kind: plan.Unicast, Hops: []plan.Hop{{Gateway: id.Outer, Device: "vxlan.calico", OnLink: true}}}
			for _, c := range []plan.Changes{
				{Routes: map[netip.Prefix]*plan.Route{dst: &route}, Remotes: map[plan.RemoteID]*plan.Remote{id: &remote}},
				{Routes: map[netip.Prefix]*plan.Route{dst: nil}, Remotes: map[plan.RemoteID]*plan.Remote{id: nil}},
			} {
				mustHoldSome(t, v.fabric, c)
				for _, mtu := range []string{"60000", "65536"} { // the last of all
					select {
					case <-signals:
						t.Error("its own changes were signalled")
					default:
					}
					netns.IP(t, "link", "set", "lo", "mtu", mtu)
					signalled(t, signals, "the MTU of lo")
				}
			}
		})
	})
}

// TestFabricHearsOfCarriers: routes leave out links without a carrier.
func TestFabricHearsOfCarriers(t *testing.T) {
	netns.Host(t, func() {
		f := newFabric(t)
		netns.IP(t, "link", "add", "up1", "type", "veth", "peer", "name", "far1")
		netns.IP(t, "link", "set", "up1", "up")
		netns.IP(t, "link", "set", "far1", "up")
		pods.AwaitSettled(t, "up1")
		signals, err := f.Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		settleFabric(t, signals)
		for _, far := range []string{"down", "up"} {
			netns.IP(t, "link", "set", "far1", far)
			signalled(t, signals, "far1, which is set "+far) // of itself
			for {
				up1, err := link.Find("up1")
				if err != nil {
					t.Fatal(err)
				}
				if up1.Carrier == (far == "up") {
					break
				}
				signalled(t, signals, "the carrier of up1, after far1 was set "+far)
			}
		}
	})
}

// TestTunnelForwards: a tunnel forwards on a host whose new links don't. Forwarding that is switched off, and a bridge that gets the tunnel
// as a port, are signalled and repaired.
func TestTunnelForwards(t *testing.T) {
	netns.Host(t, func() {
		hosts := virtualHosts(t, 2)
		v := hosts[0]
		mustHold(t, hosts[1].fabric, hosts[1].vxlanState(hosts))
		st := v.vxlanState(hosts)
		netns.Within(t, v.ns, func() {
			const forwarding = "ipv4/conf/vxlan.calico/forwarding"
			netns.SetSysctl(t, "ipv4/conf/default/forwarding", "0")
			mustHold(t, v.fabric, st)
			if got, err := rtnl.ReadSysctl(forwarding); got != 1 {
				t.Errorf("a new tunnel has forwarding %d, %v", got, err)
			}
			signals, err := v.fabric.Subscribe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			settleFabric(t, signals)
			for _, sysctl := range []string{forwarding, "ipv6/conf/vxlan-v6.calico/forwarding"} {
				netns.SetSysctl(t, sysctl, "0")
				signalled(t, signals, []string{sysctl})
				if r := mustHold(t, v.fabric, st); r.Repairs != 1 {
					t.Errorf("%s: %d repairs, want 1", sysctl, r.Repairs)
				}
			}
			netns.IP(t, "link", "add", "br0", "up", "type", "bridge")
			netns.IP(t, "link", "set", "vxlan.calico", "master", "br0")
			signalled(t, signals, []string{"the tunnel is a bridge's port"})
			if r := mustHold(t, v.fabric, st); r.Repairs != 1 {
				t.Errorf("%d repairs of a tunnel in a bridge, want 1", r.Repairs)
			}
			pods.Ping(t, v.pod, hosts[1].pod4())
		})
	})
}
