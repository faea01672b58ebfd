// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
)

// held returns the host's part of the data path, as iproute2 prints it.
func held(tb testing.TB) []string {
	tb.Helper()
	lines := netns.IP(tb, "-4", "route", "show", "proto", "80")
	lines = append(lines, netns.IP(tb, "-4", "route", "show", "table", "local", "proto", "80")...)
	lines = append(lines, netns.IP(tb, "-6", "route", "show", "proto", "80")...)
	return append(lines, neighbours(tb)...)
}

// neighbours returns sorted entries: the kernel's order changes when its table, which all namespaces share, grows.
func neighbours(tb testing.TB) []string {
	tb.Helper()
	return slices.Sorted(slices.Values(netns.IP(tb, "neigh", "show", "nud", "permanent")))
}

func TestHostPathHolds(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		a.endpoint.MAC = mac("02:00:00:00:00:01")
		mustApply(t, h, a.endpoint)
		want := []string{
			"10.65.0.1 dev cali1 scope link",
			"local 169.254.1.1 dev lo scope host",
			"fd00::1 dev cali1 metric 1024 pref medium",
			"10.65.0.1 dev cali1 lladdr 02:00:00:00:00:01 PERMANENT",
			"fd00::1 dev cali1 lladdr 02:00:00:00:00:01 PERMANENT",
		}
		if diff := cmp.Diff(want, held(t)); diff != "" {
			t.Errorf("routes and neighbours (-want +got):\n%s", diff)
		}
		sysctls := map[string]string{
			"ipv4/ip_forward":                     "1",
			"ipv4/conf/cali1/accept_source_route": "0",
			"ipv4/conf/cali1/rp_filter":           "1",
			"ipv4/conf/cali1/route_localnet":      "0",
			"ipv4/conf/cali1/proxy_arp":           "1",
			"ipv4/conf/cali1/forwarding":          "1",
			"ipv4/neigh/cali1/proxy_delay":        "0",
			"ipv6/conf/all/forwarding":            "1",
			"ipv6/conf/cali1/proxy_ndp":           "1",
			"ipv6/conf/cali1/accept_ra":           "0",
			"ipv6/conf/cali1/forwarding":          "1",
			"ipv6/neigh/cali1/proxy_delay":        "0",
		}
		for name, want := range sysctls {
			got, err := os.ReadFile("/proc/sys/net/" + name)
			if err != nil || strings.TrimSpace(string(got)) != want {
				t.Errorf("sysctl %s: %q, %v; want %s", name, got, err, want)
			}
		}

		inactive := a.endpoint
		inactive.Active = false
		mustApply(t, h, inactive)
		if diff := cmp.Diff([]string{"local 169.254.1.1 dev lo scope host"}, held(t)); diff != "" {
			t.Errorf("of an inactive endpoint (-want +got):\n%s", diff)
		}
		mustApply(t, h, a.endpoint)
		mustApply(t, h)
		if diff := cmp.Diff([]string{"local 169.254.1.1 dev lo scope host"}, held(t)); diff != "" {
			t.Errorf("of no endpoint (-want +got):\n%s", diff)
		}
	})
}

// breakage is a change that another program may make to two endpoints, cali1 and cali2.
type breakage struct {
	name    string
	breakIt func(tb testing.TB)
}

func breakages() []breakage {
	return []breakage{
		{"route deleted", func(tb testing.TB) { netns.IP(tb, "route", "del", "10.65.0.1") }},
		{"IPv6 route deleted", func(tb testing.TB) { netns.IP(tb, "-6", "route", "del", "fd00::1") }},
		{"route to another link", func(tb testing.TB) {
			netns.IP(tb, "route", "replace", "10.65.0.1", "dev", "cali2", "proto", "80", "scope", "link")
		}},
		{"neighbour changed", func(tb testing.TB) {
			netns.IP(tb, "neigh", "replace", "10.65.0.1", "dev", "cali1", "lladdr", "02:00:00:00:00:99", "nud", "permanent")
		}},
		{"IPv6 gateway taken away", func(tb testing.TB) { netns.IP(tb, "-6", "addr", "flush", "dev", "cali1") }},
		{"neighbour deleted", func(tb testing.TB) { netns.IP(tb, "neigh", "del", "fd00::1", "dev", "cali1") }},
		{"sysctl changed", func(tb testing.TB) { netns.SetSysctl(tb, "ipv4/conf/cali1/proxy_arp", "0") }},
		{"IPv6 sysctl changed", func(tb testing.TB) { netns.SetSysctl(tb, "ipv6/conf/cali1/proxy_ndp", "0") }},
		{"accept_ra changed", func(tb testing.TB) { netns.SetSysctl(tb, "ipv6/conf/cali1/accept_ra", "1") }},
		{"route_localnet changed", func(tb testing.TB) { netns.SetSysctl(tb, "ipv4/conf/cali1/route_localnet", "1") }},
		{"accept_source_route changed", func(tb testing.TB) { netns.SetSysctl(tb, "ipv4/conf/cali1/accept_source_route", "1") }},
		{"arp_ignore changed", func(tb testing.TB) { netns.SetSysctl(tb, "ipv4/conf/cali1/arp_ignore", "8") }},
		{"forwarding off", func(tb testing.TB) { netns.SetSysctl(tb, "ipv4/conf/all/forwarding", "0") }},
		{"gateway's route deleted", func(tb testing.TB) { netns.IP(tb, "route", "del", "local", "169.254.1.1", "table", "local") }},
	}
}

func TestRepairs(t *testing.T) {
	whole := func(h *Path, all []Endpoint) (Report, error) { return h.Apply(context.Background(), all) }
	some := func(h *Path, all []Endpoint) (Report, error) { return h.ApplySome(context.Background(), all, nil) }
	for _, repair := range []func(*Path, []Endpoint) (Report, error){whole, some} {
		netns.Host(t, func() {
			h := newHostPath(t)
			a, b := wire(t, 1), wire(t, 2)
			mustApply(t, h, a.endpoint, b.endpoint)
			right := held(t)
			for _, broken := range breakages() {
				broken.breakIt(t)
				r, err := repair(h, []Endpoint{a.endpoint, b.endpoint})
				if err != nil {
					t.Fatal(err)
				}
				mustBeProgrammed(t, r)
				if r.Repairs == 0 || r.Repairs != r.Writes {
					t.Errorf("%s: %d writes, %d repairs", broken.name, r.Writes, r.Repairs)
				}
				if diff := cmp.Diff(right, held(t)); diff != "" {
					t.Errorf("%s: after the repair (-want +got):\n%s", broken.name, diff)
				}
				if diff := cmp.Diff([]string{"cali1", "cali2"}, gateways(t)); diff != "" {
					t.Errorf("%s: who has the workloads' IPv6 gateway after the repair (-want +got):\n%s", broken.name, diff)
				}
				if r := mustApply(t, h, a.endpoint, b.endpoint); r.Writes != 0 {
					t.Errorf("%s: a second Apply made %d writes", broken.name, r.Writes)
				}
			}
		})
	}
}

// TestFightIsSaidOnce: a fight is reported once, not with each repair.
func TestFightIsSaidOnce(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		var log bytes.Buffer
		h.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a, b := wire(t, 1), wire(t, 2)
		mustApply(t, h, a.endpoint, b.endpoint)
		for range 5 {
			netns.IP(t, "route", "del", a.endpoint.Addrs[0].String())
			netns.IP(t, "route", "del", b.endpoint.Addrs[0].String())
			if r := mustApply(t, h, a.endpoint, b.endpoint); r.Repairs != 2 {
				t.Errorf("%d repairs, want 2", r.Repairs)
			}
		}
		if n := strings.Count(log.String(), "repaired"); n != 2 {
			t.Errorf("%d lines, want one for each interface:\n%s", n, &log)
		}
	})
}

func TestLeavesForeignStateAlone(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		netns.IP(t, "link", "add", "other0", "type", "veth", "peer", "name", "other1")
		netns.IP(t, "link", "set", "other0", "up")
		netns.IP(t, "route", "add", "10.1.0.0/16", "dev", "cali1")                              // not of our protocol
		netns.IP(t, "route", "add", "10.2.0.2", "dev", "other0", "proto", "80")                 // not a workload's link
		netns.IP(t, "route", "add", "10.65.0.1", "dev", "other0", "metric", "7")                // less preferred than ours
		netns.IP(t, "neigh", "add", "10.2.0.3", "dev", "other0", "lladdr", "02:00:00:00:00:03") // permanent
		netns.IP(t, "route", "add", "10.65.0.77", "dev", "cali1", "proto", "80")                // stale: ours
		mustApply(t, h, a.endpoint)
		mustApply(t, h)
		got := strings.ReplaceAll(strings.Join(append(netns.IP(t, "-4", "route"), neighbours(t)...), "\n"), " linkdown", "")
		want := strings.Join([]string{
			"10.1.0.0/16 dev cali1 scope link",
			"10.2.0.2 dev other0 proto 80 scope link",
			"10.65.0.1 dev other0 scope link metric 7",
			"10.2.0.3 dev other0 lladdr 02:00:00:00:00:03 PERMANENT",
		}, "\n")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestNotProgrammed(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		netns.IP(t, "link", "add", "other0", "type", "veth", "peer", "name", "other1")
		endpoints := []Endpoint{
			{Interface: "cali9", Active: true, Addrs: []netip.Addr{netip.MustParseAddr("10.65.0.9")}},
			{Interface: "cali8"},
			a.endpoint,
			{Interface: "cali1", Active: true},
			{Interface: "other0", Active: true},
			{Interface: "cali/7", Active: true},
			{Interface: "", Active: true},
		}
		want := []string{
			"interface cali9 is not there", "", "",
			"another endpoint has the interface cali1 too, and comes first",
			`interface "other0" has none of the prefixes of workload interfaces, ["cali"]: it is not touched`,
			`"cali/7" is not a name that a network interface can have`,
			`interface "" has none of the prefixes of workload interfaces, ["cali"]: it is not touched`,
		}
		for name, apply := range map[string]func() (Report, error){
			"Apply":     func() (Report, error) { return h.Apply(context.Background(), endpoints) },
			"ApplySome": func() (Report, error) { return h.ApplySome(context.Background(), endpoints, nil) },
		} {
			r, err := apply()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range r.Endpoints {
				got = append(got, "")
				if s.Err != nil {
					got[len(got)-1] = s.Err.Error()
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		for _, bad := range []string{"127.0.0.1", "0.0.0.0", "224.0.0.1", "::ffff:10.0.0.1", "fe80::1%x"} {
			e := Endpoint{Interface: "cali1", Active: true, Addrs: []netip.Addr{netip.MustParseAddr(bad)}}
			r, err := h.Apply(context.Background(), []Endpoint{e})
			if err != nil || r.Endpoints[0].Err == nil {
				t.Errorf("address %s: %v, %v", bad, r, err)
			}
		}
		r, err := h.Apply(context.Background(), []Endpoint{{Interface: "cali1", Active: true, Addrs: []netip.Addr{{}}}})
		if err != nil || r.Endpoints[0].Err == nil {
			t.Errorf("no address: %v, %v", r, err)
		}
	})
}

func TestContextEnds(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := h.Apply(ctx, []Endpoint{a.endpoint}); !errors.Is(err, context.Canceled) {
			t.Errorf("Apply: %v", err)
		}
		if _, err := h.ApplySome(ctx, []Endpoint{a.endpoint}, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("ApplySome: %v", err)
		}
		mustApply(t, h, a.endpoint)
	})
}

func TestGatewayRouteGivesWayToADefaultRoute(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		mustApply(t, h)
		if got := netns.IP(t, "route", "show", "table", "local", "169.254.1.1"); len(got) != 1 {
			t.Fatalf("without a default route: %q", got)
		}
		netns.IP(t, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
		netns.IP(t, "link", "set", "up0", "up")
		netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "up0")
		netns.IP(t, "route", "add", "default", "via", "192.0.2.254")
		mustApply(t, h)
		if got := netns.IP(t, "route", "show", "table", "local", "169.254.1.1"); len(got) != 0 {
			t.Errorf("with a default route: %q", got)
		}
		if r := mustApply(t, h); r.Writes != 0 {
			t.Errorf("%d writes more", r.Writes)
		}
		netns.IP(t, "route", "del", "default")
		mustApply(t, h)
		if got := netns.IP(t, "route", "show", "table", "local", "169.254.1.1"); len(got) != 1 {
			t.Errorf("without a default route again: %q", got)
		}
	})
}

// TestGatewayRouteGivesWayToANarrowRoute: an event about any route to HostGateway makes a whole Apply due. An ApplySome doesn't look for
// such a route, as it would have to list all routes.
func TestGatewayRouteGivesWayToANarrowRoute(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		events, err := h.Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustApply(t, h)
		netns.IP(t, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
		netns.IP(t, "link", "set", "up0", "up")
		for _, step := range []struct {
			change string
			local  int
		}{{"add", 0}, {"del", 1}} {
			netns.IP(t, "route", step.change, "169.254.0.0/16", "dev", "up0")
			eventually.Find(t, "an event that says that the whole is due: route "+step.change, events, func(e Event) bool { return e.All })
			mustApply(t, h)
			if got := netns.IP(t, "route", "show", "table", "local", "169.254.1.1"); len(got) != step.local {
				t.Errorf("route %s: %q", step.change, got)
			}
		}
	})
}

// TestApplySomeOfMany: many at once are read at once.
func TestApplySomeOfMany(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		all := manyEndpoints(t, 2*maxSome)
		r, err := h.ApplySome(context.Background(), all, nil)
		if err != nil {
			t.Fatal(err)
		}
		mustBeProgrammed(t, r)
		if len(r.Endpoints) != len(all) {
			t.Errorf("%d statuses of %d", len(r.Endpoints), len(all))
		}
		if r := mustApply(t, h, all...); r.Writes != 0 {
			t.Errorf("Apply had %d writes left", r.Writes)
		}
		r, err = h.ApplySome(context.Background(), all[:3], all[3:])
		if err != nil {
			t.Fatal(err)
		}
		mustBeProgrammed(t, r)
		if got := len(netns.IP(t, "-6", "route", "show", "proto", "80")); got != 3 {
			t.Errorf("%d routes left", got)
		}
	})
}
