// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

func TestHostNetwork(t *testing.T) {
	netns.Host(t, func() {
		var host Network
		read := func() plan.Links {
			t.Helper()
			links, err := host.Read("cali")
			if err != nil {
				t.Fatal(err)
			}
			return links
		}
		uplinks := func(want ...string) {
			t.Helper()
			var got []string
			for _, l := range read().Links {
				if l.Uplink {
					got = append(got, fmt.Sprint(l.Name, " ", l.MTU))
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("uplinks (-want +got):\n%s", diff)
			}
		}
		pods.Wire(t, 1)
		uplinks()
		for _, n := range []string{"1", "2", "3"} {
			netns.IP(t, "link", "add", "up"+n, "mtu", "1"+n+"00", "type", "veth", "peer", "name", "cali-peer"+n)
			netns.IP(t, "link", "set", "up"+n, "up")
			netns.IP(t, "addr", "add", "192.0."+n+".1/24", "dev", "up"+n)
		}
		uplinks("up1 1100", "up2 1200", "up3 1300")
		netns.IP(t, "route", "add", "default", "nexthop", "via", "192.0.2.2", "nexthop", "via", "192.0.3.2")
		uplinks("up2 1200", "up3 1300")
		netns.IP(t, "route", "replace", "default", "via", "192.0.3.2")
		uplinks("up3 1300")
		netns.IP(t, "route", "del", "default")
		uplinks("up3 1300") // it had it last
		netns.IP(t, "link", "set", "up3", "down")
		uplinks("up1 1100", "up2 1200")
		netns.IP(t, "link", "set", "up3", "up")
		uplinks("up3 1300")
		netns.IP(t, "route", "add", "default", "via", "192.0.2.2")
		uplinks("up2 1200")
		netns.IP(t, "route", "replace", "default", "via", "192.0.3.2")

		netns.IP(t, "addr", "add", "198.51.100.1/32", "dev", "lo")
		netns.IP(t, "route", "add", "203.0.113.0/24", "via", "192.0.1.2", "metric", "20")
		netns.IP(t, "route", "add", "203.0.113.0/24", "via", "192.0.2.2", "metric", "10")
		netns.IP(t, "route", "add", "10.65.9.0/26", "via", "192.0.2.2", "proto", "81", "metric", "1100")
		netns.IP(t, "link", "add", "vxlan.calico", "type", "vxlan", "id", "4096", "dstport", "4789")
		got := read()
		var names []string
		for _, l := range got.Links {
			names = append(names, fmt.Sprint(l.Name, " ", l.Up, " ", l.Addrs))
		}
		want := []string{"lo true [198.51.100.1/32]", "up1 true [192.0.1.1/24]", "up2 true [192.0.2.1/24]", "up3 true [192.0.3.1/24]"}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("links (-want +got):\n%s", diff)
		}
		routes := []plan.HostRoute{
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.3.2"), Device: "up3"},
			{Destination: netip.MustParsePrefix("203.0.113.0/24"), Gateway: netip.MustParseAddr("192.0.2.2"), Device: "up2"},
			{Destination: netip.MustParsePrefix("203.0.113.0/24"), Gateway: netip.MustParseAddr("192.0.1.2"), Device: "up1"},
		}
		if diff := cmp.Diff(routes, got.Routes, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("routes (-want +got):\n%s", diff)
		}
	})
}

// TestGatewayOnLink covers a host without any subnet, as many rented ones are: its routers are on the link because its routes say so.
// Routes through them can be written.
func TestGatewayOnLink(t *testing.T) {
	netns.Host(t, func() {
		for _, n := range []string{"1", "2"} {
			netns.IP(t, "link", "add", "up"+n, "type", "veth", "peer", "name", "far"+n)
			netns.IP(t, "link", "set", "far"+n, "up")
			netns.IP(t, "link", "set", "up"+n, "up")
			pods.AwaitSettled(t, "up"+n)
		}
		netns.IP(t, "addr", "add", "192.0.2.1/32", "dev", "up1")
		netns.IP(t, "addr", "add", "2001:db8::1/128", "dev", "up1", "nodad")
		netns.IP(t, "route", "add", "default", "via", "203.0.113.1", "dev", "up1", "onlink")
		netns.IP(t, "route", "add", "198.51.100.0/24", "nexthop", "via", "203.0.113.1", "dev", "up1", "onlink", "nexthop", "via", "203.0.113.2", "dev", "up2", "onlink")
		netns.IP(t, "route", "add", "default", "via", "2001:db8:1::1", "dev", "up1", "onlink")
		links, err := new(Network).Read("far")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		st := plan.State{Routes: map[netip.Prefix]plan.Route{}}
		for i, r := range links.Routes {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, 0, byte(i << 6)}), 26)
			if r.Destination.Addr().Is6() {
				p = netip.MustParsePrefix("fd65::/122")
			}
			st.Routes[p] = plan.Route{Destination: p, Kind: plan.Unicast, Origin: plan.FromBGP, Hops: []plan.Hop{{Gateway: r.Gateway, Device: r.Device, OnLink: r.OnLink}}}
			got = append(got, fmt.Sprint(r.Destination, " ", r.Gateway, " ", r.Device, " ", r.OnLink))
		}
		want := []string{"0.0.0.0/0 203.0.113.1 up1 true", "198.51.100.0/24 203.0.113.1 up1 true", "198.51.100.0/24 203.0.113.2 up2 true", "::/0 2001:db8:1::1 up1 true"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
		f := newFabric(t)
		mustHold(t, f, st)
		if again := mustHold(t, f, st); again.Writes != 0 {
			t.Errorf("what stands is written again: %+v", again)
		}
	})
}

// TestGatewayOfIPv6 reads and writes IPv4 routes through neighbours that have only IPv6.
func TestGatewayOfIPv6(t *testing.T) {
	netns.Host(t, func() {
		for _, n := range []string{"1", "2"} {
			netns.IP(t, "link", "add", "up"+n, "type", "veth", "peer", "name", "far"+n)
			netns.IP(t, "link", "set", "far"+n, "up")
			netns.IP(t, "link", "set", "up"+n, "up")
			pods.AwaitSettled(t, "up"+n)
		}
		netns.IP(t, "addr", "add", "192.0.2.1/32", "dev", "up1")
		netns.IP(t, "route", "add", "198.51.100.0/24", "via", "inet6", "fe80::1", "dev", "up1")
		netns.IP(t, "route", "add", "203.0.113.0/24", "nexthop", "via", "inet6", "fe80::1", "dev", "up1", "nexthop", "via", "inet6", "fe80::2", "dev", "up2")
		netns.IP(t, "route", "add", "203.0.113.0/24", "via", "inet6", "fe80::3", "dev", "up2", "metric", "9") // another route
		links, err := new(Network).Read("far")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range links.Routes {
			if r.Destination.Addr().Is4() {
				got = append(got, fmt.Sprint(r.Destination, " ", r.Gateway, " ", r.Device, " ", r.Next))
			}
		}
		want := []string{"198.51.100.0/24 fe80::1 up1 false", "203.0.113.0/24 fe80::1 up1 false", "203.0.113.0/24 fe80::2 up2 true", "203.0.113.0/24 fe80::3 up2 false"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}

		one, several := netip.MustParsePrefix("10.65.1.0/26"), netip.MustParsePrefix("10.65.2.0/26")
		hops := []plan.Hop{{Gateway: netip.MustParseAddr("fe80::1"), Device: "up1"}, {Gateway: netip.MustParseAddr("fe80::2"), Device: "up2"}}
		st := plan.State{Routes: map[netip.Prefix]plan.Route{
			one:     {Destination: one, Kind: plan.Unicast, Origin: plan.FromBGP, Hops: hops[:1], Source: netip.MustParseAddr("192.0.2.1")},
			several: {Destination: several, Kind: plan.Unicast, Origin: plan.FromBGP, Hops: hops},
		}}
		f := newFabric(t)
		mustHold(t, f, st)
		if again := mustHold(t, f, st); again.Writes != 0 {
			t.Errorf("what stands is written again: %+v", again)
		}
		lines := netns.IP(t, "route", "show", "proto", "81")
		wantLines := []string{
			"10.65.1.0/26 via inet6 fe80::1 dev up1 src 192.0.2.1 metric 1100",
			"10.65.2.0/26 metric 1100", "nexthop via inet6 fe80::1 dev up1 weight 1", "nexthop via inet6 fe80::2 dev up2 weight 1",
		}
		if diff := cmp.Diff(wantLines, lines); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
		found, err := fabric.Routes()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			if want := st.Routes[r.Destination]; r.String() != want.String() {
				t.Errorf("read again: %s, want %s", r, want)
			}
		}
		if len(found) != 2 {
			t.Errorf("read again: %v", found)
		}
		mustHold(t, f, plan.State{})
		if left := netns.IP(t, "route", "show", "proto", "81"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// TestFabricRoutes reads routes that a former Fabric may have had from BGP.
func TestFabricRoutes(t *testing.T) {
	netns.Host(t, func() {
		netns.IP(t, "link", "add", "up1", "type", "veth", "peer", "name", "peer1")
		netns.IP(t, "link", "set", "up1", "up")
		netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "up1")
		netns.IP(t, "link", "add", "vxlan.calico", "type", "vxlan", "id", "4096", "dstport", "4789")
		netns.IP(t, "link", "set", "vxlan.calico", "up")
		for _, route := range [][]string{
			{"10.65.1.0/26", "via", "192.0.2.2", "src", "192.0.2.1"},
			{"10.65.2.0/26", "nexthop", "via", "192.0.2.2", "nexthop", "via", "192.0.2.3"},
			{"10.65.3.0/26", "via", "192.0.2.2", "dev", "vxlan.calico", "onlink"},
			{"blackhole", "10.65.4.0/26"},
		} {
			netns.IP(t, append([]string{"route", "add", "proto", "81", "metric", "1100"}, route...)...)
		}
		netns.IP(t, "route", "add", "10.65.5.0/26", "via", "192.0.2.2", "proto", "bird")
		found, err := fabric.Routes()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range found {
			got = append(got, r.String())
		}
		want := []string{
			"10.65.1.0/26 via 192.0.2.2 dev up1 src 192.0.2.1",
			"10.65.2.0/26 nexthop via 192.0.2.2 dev up1 weight 1 nexthop via 192.0.2.3 dev up1 weight 1",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestHostNetworkIPv6 distinguishes addresses that the kernel doesn't use, or not yet, from the others.
func TestHostNetworkIPv6(t *testing.T) {
	netns.Host(t, func() {
		netns.IP(t, "link", "add", "up1", "type", "veth", "peer", "name", "cali-peer1")
		netns.IP(t, "link", "set", "cali-peer1", "up")
		netns.IP(t, "addr", "add", "fd99::9/64", "dev", "cali-peer1", "nodad") // another host's
		netns.IP(t, "link", "set", "up1", "up")
		netns.IP(t, "link", "add", "up2", "type", "veth", "peer", "name", "cali-peer2")
		netns.IP(t, "link", "set", "up2", "up") // and has no carrier, so that nothing can be asked
		pods.AwaitSettled(t, "up1")
		for _, args := range [][]string{
			{"fd99::1/64", "dev", "up1", "nodad"},
			{"fd99::2/64", "dev", "up1", "nodad", "preferred_lft", "0"},
			{"192.0.2.1/24", "dev", "up1"},
			{"192.0.2.2/24", "dev", "up1"}, // with IFA_F_SECONDARY, which is IFA_F_TEMPORARY's bit
			{"fd99::9/64", "dev", "up1"},
			{"fd98::1/64", "dev", "up2"},
		} {
			netns.IP(t, append([]string{"addr", "add"}, args...)...)
		}
		want := []string{
			"up1: no carrier false, [192.0.2.1/24 192.0.2.2/24 fd99::2/64 fd99::1/64], pending [], passing [fd99::2], refused [fd99::9/64]",
			"up2: no carrier true, [fd98::1/64], pending [fd98::1], passing [], refused []",
		}
		eventually.Nil(t, "all to be told", func() error {
			links, err := new(Network).Read("cali")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range links.Links {
				if l.Name == "lo" {
					if l.NoCarrier || !l.Loopback {
						t.Errorf("lo is %+v", l)
					}
				} else {
					got = append(got, fmt.Sprintf("%s: no carrier %v, %v, pending %v, passing %v, refused %v", l.Name, l.NoCarrier, l.Addrs, l.Pending, l.Passing, l.Refused))
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return errors.New("-want +got:\n" + diff)
			}
			return nil
		})
	})
}

// TestAddAddr reads flags that only the kernel can set.
func TestAddAddr(t *testing.T) {
	for _, tt := range []struct {
		addr  string
		flags int
		want  string
	}{
		{"fd99::1/64", unix.IFA_F_PERMANENT, "[fd99::1/64] [] [] []"},
		{"fd99::1/64", unix.IFA_F_TEMPORARY, "[fd99::1/64] [] [fd99::1] []"},
		{"fd99::1/64", unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC, "[fd99::1/64] [fd99::1] [] []"},
		{"fd99::1/64", unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED, "[] [] [] [fd99::1/64]"},
		{"192.0.2.1/24", unix.IFA_F_SECONDARY, "[192.0.2.1/24] [] [] []"},
		{"192.0.2.1/24", unix.IFA_F_DEPRECATED, "[192.0.2.1/24] [] [192.0.2.1] []"},
	} {
		var l plan.Link
		addAddr(&l, netip.MustParsePrefix(tt.addr), tt.flags)
		if got := fmt.Sprint(l.Addrs, l.Pending, l.Passing, l.Refused); got != tt.want {
			t.Errorf("%s, flags %#x: %s, want %s", tt.addr, tt.flags, got, tt.want)
		}
	}
}
