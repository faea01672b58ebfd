// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/plan"
)

func TestHostNetwork(t *testing.T) {
	inHost(t, func() {
		read := func() plan.Links {
			t.Helper()
			links, err := HostNetwork("cali")
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
		wire(t, 1)
		uplinks()
		for _, n := range []string{"1", "2", "3"} {
			ip(t, "link", "add", "up"+n, "mtu", "1"+n+"00", "type", "veth", "peer", "name", "cali-peer"+n)
			ip(t, "link", "set", "up"+n, "up")
			ip(t, "addr", "add", "192.0."+n+".1/24", "dev", "up"+n)
		}
		uplinks("up1 1100", "up2 1200", "up3 1300")
		ip(t, "route", "add", "default", "nexthop", "via", "192.0.2.2", "nexthop", "via", "192.0.3.2")
		uplinks("up2 1200", "up3 1300")
		ip(t, "route", "replace", "default", "via", "192.0.3.2")
		uplinks("up3 1300")

		ip(t, "addr", "add", "198.51.100.1/32", "dev", "lo")
		ip(t, "route", "add", "203.0.113.0/24", "via", "192.0.1.2", "metric", "20")
		ip(t, "route", "add", "203.0.113.0/24", "via", "192.0.2.2", "metric", "10")
		ip(t, "route", "add", "10.65.9.0/26", "via", "192.0.2.2", "proto", "81", "metric", "1100")
		ip(t, "link", "add", "vxlan.calico", "type", "vxlan", "id", "4096", "dstport", "4789")
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

// TestFabricRoutes reads what a former Fabric may have had from BGP.
func TestFabricRoutes(t *testing.T) {
	inHost(t, func() {
		ip(t, "link", "add", "up1", "type", "veth", "peer", "name", "peer1")
		ip(t, "link", "set", "up1", "up")
		ip(t, "addr", "add", "192.0.2.1/24", "dev", "up1")
		ip(t, "link", "add", "vxlan.calico", "type", "vxlan", "id", "4096", "dstport", "4789")
		ip(t, "link", "set", "vxlan.calico", "up")
		for _, route := range [][]string{
			{"10.65.1.0/26", "via", "192.0.2.2", "src", "192.0.2.1"},
			{"10.65.2.0/26", "nexthop", "via", "192.0.2.2", "nexthop", "via", "192.0.2.3"},
			{"10.65.3.0/26", "via", "192.0.2.2", "dev", "vxlan.calico", "onlink"},
			{"blackhole", "10.65.4.0/26"},
		} {
			ip(t, append([]string{"route", "add", "proto", "81", "metric", "1100"}, route...)...)
		}
		ip(t, "route", "add", "10.65.5.0/26", "via", "192.0.2.2", "proto", "bird")
		found, err := FabricRoutes()
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
