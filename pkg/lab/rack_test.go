// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

func TestRacks(t *testing.T) {
	l := ForTest(t, Config{Hosts: []string{"z"}, Racks: [][]string{{"a", "b"}, {"c"}}, NoAgent: true})
	if got := len(l.Routers()); got != 2 {
		t.Fatalf("%d routers: want 2", got)
	}
	r1, r2 := l.Router(1), l.Router(2)
	if _, err := r2.AddHost(soon(t), "d"); err != nil {
		t.Fatal(err)
	}
	for _, h := range l.Hosts() {
		targets := []Target{l.Host("a"), l.Host("b"), l.Host("c"), l.Host("d"), l.Host("z"), r1, r2,
			Address(memberAddr(false, 1).Addr()), Address(memberAddr(true, 1).Addr()), Address(r1.Uplinks()[0]), Address(r2.Uplinks()[1])}
		for _, to := range targets {
			if err := h.Ping(soon(t), to); err != nil {
				t.Error(err)
			}
		}
	}
	if err := r1.Ping(soon(t), l.Host("d")); err != nil {
		t.Error(err)
	}
	var names []string
	for _, h := range r2.Hosts() {
		names = append(names, h.Name()+" "+h.Router().Name())
		for i, a := range h.Addrs() {
			if !r2.Subnets()[i].Contains(a) {
				t.Errorf("host %s: %s is not in %s", h.Name(), a, r2.Subnets()[i])
			}
		}
	}
	if diff := cmp.Diff([]string{"c rack2", "d rack2"}, names); diff != "" {
		t.Errorf("hosts of rack2 (-want +got):\n%s", diff)
	}
	if l.Host("z").Router() != nil {
		t.Error("a host on the fabric has a router")
	}

	// Another process finds the same.
	other, err := Open(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	h, err := other.FindHost("d")
	if err != nil {
		t.Fatal(err)
	}
	if h.IPv4() != netip.MustParseAddr("172.22.1.5") || h.Router().Namespace() != r2.Namespace() {
		t.Errorf("host d as another process sees it: %s in %v", h.IPv4(), h.Router())
	}
	out, err := other.Routers()[0].Exec(soon(t), "ip", "route")
	if err != nil || !strings.Contains(string(out), "172.22.0.0/16 via 172.20.0.102 dev uplink") {
		t.Errorf("routes of rack1: %v\n%s", err, out)
	}
}

func TestRacksThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Racks: make([][]string, 12)}, "12 racks: a lab has 11 at most"},
		{Config{Hosts: []string{"a"}, Racks: [][]string{{"b"}, {"a"}}}, "host a: the name is taken"},
		{Config{Racks: [][]string{{"rack1"}}}, "host rack1: the name is taken"},
		{Config{Racks: [][]string{{"A"}}}, `host name "A"`},
		{Config{Hosts: []string{"fabric"}}, "host fabric: the name is taken"},
	} {
		if _, err := Start(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.want)
		}
	}
}

// TestAcrossRacks has pods talk with VXLAN for what is beyond a router, and
// nothing for what is on the same wire.
func TestAcrossRacks(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{
		Racks: [][]string{{"a", "b"}, {"c"}},
		Pool:  func(p *model.Pool) { p.VXLANMode = model.EncapCrossSubnet },
	})
	pods := map[string]*Pod{}
	for _, h := range []string{"a", "b", "c"} {
		pods[h] = l.Host(h).Pod("pod-" + h)
	}
	for _, from := range pods {
		for _, to := range pods {
			if err := from.Ping(soon(t), to); err != nil {
				t.Error(err)
			}
		}
	}
	for host, wants := range map[string]map[string]string{
		"a": {"b": "dev eth0", "c": "dev vxlan"},
		"c": {"a": "dev vxlan", "b": "dev vxlan"},
	} {
		k, err := l.Host(host).Namespace().Kernel()
		if err != nil {
			t.Fatal(err)
		}
		for other, want := range wants {
			for _, addr := range pods[other].Addrs() {
				if got := routeTo(k, addr); !strings.Contains(got, want) {
					t.Errorf("on host %s, to pod-%s: %q, want %q", host, other, got, want)
				}
			}
		}
	}
}

// routeTo is the line of the route, not the default, that leads to an address.
func routeTo(k Kernel, addr netip.Addr) string {
	for _, line := range k.Routes {
		fields := strings.Fields(line)
		if dst, err := netip.ParsePrefix(fields[1]); err == nil && dst.Contains(addr) {
			return line
		}
	}
	return ""
}
