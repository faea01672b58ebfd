// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/test/netns"
)

func TestCheckRoute(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("fd09::/64")
	gateway := netip.MustParseAddr("10.0.0.1")
	for _, tt := range []struct {
		route Route
		want  string // "" = it is taken
	}{
		{Route{Dst: v4, Gateway: gateway, MTU: 68, AdvMSS: 65495, Metric: 1<<32 - 1, Table: 1<<32 - 1, Scope: unix.RT_SCOPE_SITE}, ""},
		{Route{Dst: v6, MTU: 1280, Table: 79999, Scope: unix.RT_SCOPE_HOST}, ""},
		{Route{Dst: v4, Scope: unix.RT_SCOPE_LINK, Table: 145536}, ""},
		{Route{Dst: v4, MTU: 67}, "route to 10.9.0.0/16: mtu 67: want 68 to 65535"},
		{Route{Dst: v6, MTU: 1279}, "route to fd09::/64: mtu 1279: want 1280 to 65535"},
		{Route{Dst: v6, MTU: 65536}, "route to fd09::/64: mtu 65536: want 1280 to 65535"},
		{Route{Dst: v4, AdvMSS: 65496}, "route to 10.9.0.0/16: advmss 65496: at most 65495"},
		{Route{Dst: v4, Table: 255}, "route to 10.9.0.0/16: table 255 is the kernel's, of local addresses: want another, or none for the main one"},
		{Route{Dst: v4, Table: 80003}, "route to 10.9.0.0/16: table 80003: those from 80000 to 145535 are for a container's later interfaces: want another"},
		{Route{Dst: v4, Scope: 7}, "route to 10.9.0.0/16: scope 7: want 0 (global), 200 (site), 253 (link) or 254 (host)"},
		{Route{Dst: v4, Gateway: gateway, Scope: unix.RT_SCOPE_LINK},
			"route to 10.9.0.0/16: scope 253 has no gateway, and it names 10.0.0.1: drop one of the two"},
		{Route{Dst: v6, Gateway: gateway}, "route to fd09::/64 by 10.0.0.1: not of one family"},
	} {
		got := ""
		if err := tt.route.Check(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.route, got, tt.want)
		}
	}
}

// TestConfigureRoutes configures routes with everything they may have, repeatedly, and on a second link, too: the first one's stay as they
// are.
func TestConfigureRoutes(t *testing.T) {
	prefix := netip.MustParsePrefix
	routes := []Route{
		{Dst: prefix("0.0.0.0/0"), MTU: 1400, AdvMSS: 1300},
		{Dst: prefix("10.9.0.0/16"), Metric: 100},
		{Dst: prefix("10.9.0.0/16"), Metric: 200, MTU: 1500}, // the link's own
		{Dst: prefix("10.8.0.0/16"), Scope: unix.RT_SCOPE_LINK},
		{Dst: prefix("10.7.0.0/16"), Table: 100, Metric: 7},
		{Dst: prefix("::/0"), MTU: 1300, Metric: 50},
		{Dst: prefix("fd09::/64"), Table: 1000, AdvMSS: 1200, Scope: unix.RT_SCOPE_LINK},
	}
	first := []string{
		"10.8.0.0/16 dev net0 scope link",
		"10.9.0.0/16 via 169.254.1.1 dev net0 metric 100",
		"10.9.0.0/16 via 169.254.1.1 dev net0 metric 200",
		"169.254.1.1 dev net0 scope link",
		"default via 169.254.1.1 dev net0 mtu 1400 advmss 1300",
		"table 100: 10.7.0.0/16 via 169.254.1.1 dev net0 metric 7",
		"v6 default via fe80::ecee:eeff:feee:eeee dev net0 metric 50 mtu 1300",
		"v6 table 1000: fd09::/64 via fe80::ecee:eeff:feee:eeee dev net0 metric 1024 advmss 1200",
	}
	netns.Host(t, func() {
		ns := newPod(t)
		listed := func(name string) (out []string) {
			t.Helper()
			err := ns.Enter(func() error {
				for what, args := range map[string][]string{
					"": {"-4", "route"}, "table 100: ": {"-4", "route", "show", "table", "100"},
					"v6 ": {"-6", "route"}, "v6 table 1000: ": {"-6", "route", "show", "table", "1000"},
				} {
					for _, line := range netns.IP(t, args...) {
						line = strings.TrimSpace(strings.NewReplacer("proto boot ", "", " pref medium", "", "proto kernel ", "").Replace(line))
						if strings.Contains(line, " dev "+name+" ") && !strings.HasPrefix(line, "fe80::/64") && !strings.HasPrefix(line, "fd00::") {
							out = append(out, what+line)
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(out)
			return out
		}
		for _, name := range []string{"net0", "net1"} {
			if _, _, err := CreateVeth(ns, Veth{HostName: "cali" + name, PodName: name, MTU: 1500}); err != nil {
				t.Fatal(err)
			}
			again, err := OpenNamespace("/proc/self/fd/" + fdOf(ns))
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			net := Net{IfName: name, Addrs: addrs("10.0.0.1", "fd00::1"), Routes: routes}
			if name == "net1" {
				net.Addrs = addrs("10.0.0.2", "fd00::2")
			}
			for _, handle := range []*Namespace{ns, ns, again, again} {
				if err := Configure(handle, net); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(first, listed("net0")); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", name, diff)
				}
			}
			if got := listed(name); len(got) != len(first) {
				t.Errorf("%s has %q", name, got)
			}
			state, err := Read(ns, name, 100, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if len(state.Routes) != len(first) || len(state.Astray) > 0 {
				t.Errorf("%s: read %v, astray %v", name, state.Routes, state.Astray)
			}
		}
	})
}

// TestReadOfGreatMetrics configures an only link with metrics as large as those of a later one: that its addresses have no default route is
// as requested.
func TestReadOfGreatMetrics(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "net0"}); err != nil {
			t.Fatal(err)
		}
		net := Net{IfName: "net0", Addrs: addrs("10.0.0.1", "fd00::1"), Routes: []Route{
			{Dst: netip.MustParsePrefix("10.9.0.0/16"), Metric: 5000}, {Dst: netip.MustParsePrefix("fd09::/64"), Metric: 5000},
		}}
		if err := Configure(ns, net); err != nil {
			t.Fatal(err)
		}
		if state, err := Read(ns, "net0"); err != nil || len(state.Astray) > 0 {
			t.Errorf("astray %v, %v", state.Astray, err)
		}
	})
}
