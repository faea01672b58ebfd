// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/vishvananda/netlink"
)

// virtualHost is a namespace on a bridge, with a pod. Host n has 192.0.2.n and 2001:db8::n, the blocks 10.65.n.0/24 and fd00:n::/64, and a
// pod with address 2 of each.
type virtualHost struct {
	n      int
	ns     *pod.Namespace
	pod    *pod.Namespace
	fabric *Fabric
	path   *hostpath.Path
}

func (v *virtualHost) addr4() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(v.n)}) }
func (v *virtualHost) addr6() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", v.n))
}
func (v *virtualHost) pod4() netip.Addr   { return netip.AddrFrom4([4]byte{10, 65, byte(v.n), 2}) }
func (v *virtualHost) pod6() netip.Addr   { return netip.MustParseAddr(fmt.Sprintf("fd00:%x::2", v.n)) }
func (v *virtualHost) tun4() netip.Addr   { return netip.AddrFrom4([4]byte{10, 65, byte(v.n), 0}) }
func (v *virtualHost) tun6() netip.Addr   { return netip.MustParseAddr(fmt.Sprintf("fd00:%x::", v.n)) }
func (v *virtualHost) mac4() model.MAC    { return model.MAC{0x66, 4, 0, 0, 0, byte(v.n)} }
func (v *virtualHost) mac6() model.MAC    { return model.MAC{0x66, 6, 0, 0, 0, byte(v.n)} }
func (v *virtualHost) net4() netip.Prefix { return netip.PrefixFrom(v.tun4(), 24) }
func (v *virtualHost) net6() netip.Prefix { return netip.PrefixFrom(v.tun6(), 64) }

// virtualHosts creates hosts 1 to n. The current namespace is the wire.
func virtualHosts(tb testing.TB, n int) []*virtualHost {
	tb.Helper()
	netns.IP(tb, "link", "add", "wire", "type", "bridge")
	netns.IP(tb, "link", "set", "wire", "up")
	hosts := make([]*virtualHost, n)
	for i := range hosts {
		v := &virtualHost{n: i + 1, ns: pods.New(tb)}
		hosts[i] = v
		port := fmt.Sprintf("port%d", v.n)
		netns.IP(tb, "link", "add", port, "type", "veth", "peer", "name", "far")
		moveFar(tb, v.ns)
		netns.IP(tb, "link", "set", port, "master", "wire", "up")
		netns.Within(tb, v.ns, func() {
			netns.IP(tb, "link", "set", "lo", "up")
			netns.IP(tb, "link", "set", "eth0", "up")
			netns.IP(tb, "addr", "add", v.addr4().String()+"/24", "dev", "eth0")
			netns.IP(tb, "addr", "add", v.addr6().String()+"/64", "dev", "eth0", "nodad")
			pods.AwaitAddr(tb, v.addr6())
			pods.AwaitSettled(tb, "eth0")
			netns.IP(tb, "route", "add", "default", "via", "192.0.2.254")
			v.fabric, v.path = newFabric(tb), newHostPath(tb)
			w := wire(tb, v.n, v.pod4(), v.pod6())
			v.pod = w.ns
			mustApply(tb, v.path, w.endpoint)
		})
	}
	return hosts
}

// moveFar moves the link far into a namespace, as eth0.
func moveFar(tb testing.TB, ns *pod.Namespace) {
	tb.Helper()
	far, err := netlink.LinkByName("far")
	if err == nil {
		err = netlink.LinkSetNsFd(far, int(ns.Fd()))
	}
	if err != nil {
		tb.Fatal(err)
	}
	netns.Within(tb, ns, func() { netns.IP(tb, "link", "set", "far", "name", "eth0") })
}

func newFabric(tb testing.TB) *Fabric {
	tb.Helper()
	f, err := New(Config{Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Close)
	return f
}

// vxlanState returns what host v must hold to reach the others through VXLAN.
func (v *virtualHost) vxlanState(all []*virtualHost) plan.State {
	st := v.plainState(nil)
	st.Remotes = make(map[plan.RemoteID]plan.Remote)
	st.Tunnels = []plan.Tunnel{
		{Kind: plan.VXLAN4, Device: "vxlan.calico", Local: v.addr4(), Parent: "eth0", Addr: v.tun4(), MTU: 1450, MAC: v.mac4(), VNI: 4096, Port: 4789},
		{Kind: plan.VXLAN6, Device: "vxlan-v6.calico", Local: v.addr6(), Parent: "eth0", Addr: v.tun6(), MTU: 1430, MAC: v.mac6(), VNI: 4096, Port: 4789},
	}
	for _, o := range all {
		if o == v {
			continue
		}
		for _, r := range []plan.Remote{
			{RemoteID: plan.RemoteID{Tunnel: plan.VXLAN4, Outer: o.addr4()}, Gateway: o.addr4(), MAC: o.mac4()},
			{RemoteID: plan.RemoteID{Tunnel: plan.VXLAN6, Outer: o.addr6()}, Gateway: rtnl.LinkLocal(o.mac6()), MAC: o.mac6()},
		} {
			r.Host = fmt.Sprintf("host%d", o.n)
			st.Remotes[r.RemoteID] = r
		}
		for _, r := range []plan.Route{
			{Destination: o.net4(), Hops: []plan.Hop{{Gateway: o.addr4(), Device: "vxlan.calico", OnLink: true}}, Source: v.tun4()},
			{Destination: o.net6(), Hops: []plan.Hop{{Gateway: rtnl.LinkLocal(o.mac6()), Device: "vxlan-v6.calico", OnLink: true}}, Source: v.tun6()},
		} {
			r.Kind, r.Origin, r.Host = plan.Unicast, plan.FromHost, fmt.Sprintf("host%d", o.n)
			st.Routes[r.Destination] = r
		}
	}
	return st
}

// plainState returns what it must hold to reach them without encapsulation.
func (v *virtualHost) plainState(all []*virtualHost) plan.State {
	st := plan.State{Routes: map[netip.Prefix]plan.Route{
		v.net4(): {Destination: v.net4(), Kind: plan.Blackhole, Origin: plan.FromBlock},
		v.net6(): {Destination: v.net6(), Kind: plan.Blackhole, Origin: plan.FromBlock},
	}}
	for _, o := range all {
		if o == v {
			continue
		}
		for p, gateway := range map[netip.Prefix]netip.Addr{o.net4(): o.addr4(), o.net6(): o.addr6()} {
			st.Routes[p] = plan.Route{Destination: p, Kind: plan.Unicast, Origin: plan.FromBGP, Hops: []plan.Hop{{Gateway: gateway, Device: "eth0"}}}
		}
	}
	return st
}

// mustHold applies and expects the kernel to hold it all.
func mustHold(tb testing.TB, f *Fabric, st plan.State) Report {
	tb.Helper()
	r, err := f.Apply(context.Background(), st)
	if err != nil {
		tb.Fatal(err)
	}
	noProblems(tb, r)
	return r
}

func noProblems(tb testing.TB, r Report) {
	tb.Helper()
	for _, p := range r.Problems {
		tb.Errorf("%s: %v", p.Subject, p.Err)
	}
}

// mustHoldSome does the same with changes.
func mustHoldSome(tb testing.TB, f *Fabric, c plan.Changes) Report {
	tb.Helper()
	r, err := f.ApplySome(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	noProblems(tb, r)
	return r
}

// heldByFabric returns the Fabric's part of the namespace, as iproute2 prints it.
func heldByFabric(tb testing.TB) []string {
	tb.Helper()
	lines := netns.IP(tb, "-4", "route", "show", "proto", "81")
	lines = append(lines, netns.IP(tb, "-6", "route", "show", "proto", "81")...)
	for _, device := range []string{"vxlan.calico", "vxlan-v6.calico"} {
		if _, err := os.Stat("/proc/sys/net/ipv4/conf/" + device); err != nil {
			continue
		}
		// The kernel's order of neighbours changes where its table, which is all namespaces', grows.
		lines = append(lines, slices.Sorted(slices.Values(netns.IP(tb, "neigh", "show", "nud", "permanent", "dev", device)))...)
		lines = append(lines, netns.IP(tb, "-o", "addr", "show", "dev", device, "scope", "global")...)
		lines = append(lines, bridgeFDB(tb, device)...)
	}
	return lines
}

// wired is a pod with a veth to the host.
type wired struct {
	ns       *pod.Namespace
	endpoint hostpath.Endpoint
}

// wire creates pod n with these addresses, or else with one of each family.
func wire(tb testing.TB, n int, addrs ...netip.Addr) wired {
	tb.Helper()
	p := pods.Wire(tb, n, addrs...)
	return wired{p.Namespace, hostpath.Endpoint{Interface: p.Interface, MAC: p.MAC, Addrs: p.Addrs, Active: true}}
}

// newHostPath returns a Path in the current namespace, with its log in the test's.
func newHostPath(tb testing.TB) *hostpath.Path {
	tb.Helper()
	h, err := hostpath.New(hostpath.Config{Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(h.Close)
	return h
}

// mustApply applies and expects everything to be programmed.
func mustApply(tb testing.TB, h *hostpath.Path, desired ...hostpath.Endpoint) hostpath.Report {
	tb.Helper()
	r, err := h.Apply(context.Background(), desired)
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range r.Endpoints {
		if s.Err != nil {
			tb.Errorf("%s: %v", s.Interface, s.Err)
		}
	}
	for _, p := range r.Problems {
		tb.Error(p)
	}
	return r
}

func mac(s string) model.MAC {
	m, err := model.ParseMAC(s)
	if err != nil {
		panic(err) // a test's own literal
	}
	return m
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
