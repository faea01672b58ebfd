// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/netns"
	"github.com/google/go-cmp/cmp"
)

// TestStrays: links that the plugin created and that no endpoint has are reported.
func TestStrays(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		wire(t, 3)
		netns.IP(t, "link", "set", "cali3", "alias", "") // another program's
		netns.IP(t, "link", "set", "cali2", "alias", "net.c2.eth0")
		netns.IP(t, "link", "add", "cali4", "type", "veth", "peer", "name", "other")
		netns.IP(t, "link", "set", "cali4", "alias", "net.c4.eth0") // down
		report, err := h.Apply(context.Background(), []Endpoint{a.endpoint, b.endpoint})
		if err != nil || len(report.Stale) > 0 {
			t.Fatalf("Apply: %v, %v", report.Stale, err)
		}
		want := []StaleLink{{"cali2", "net.c2.eth0"}}
		report, err = h.ApplySome(context.Background(), nil, []Endpoint{b.endpoint})
		if diff := cmp.Diff(want, report.Stale); diff != "" || err != nil {
			t.Errorf("ApplySome, %v (-want +got):\n%s", err, diff)
		}
		report, err = h.Apply(context.Background(), []Endpoint{a.endpoint})
		if diff := cmp.Diff(want, report.Stale); diff != "" || err != nil {
			t.Errorf("Apply, %v (-want +got):\n%s", err, diff)
		}
	})
}

// TestAnothersInterface: a recreated pod has an interface of the same name. Routes to the former container must not lead to it before etcd
// names it.
func TestAnothersInterface(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		netns.IP(t, "link", "set", "cali1", "alias", "calico net.c1.eth0")
		a.endpoint.Container = "c1"
		// Its address is another's as well, which comes second.
		b.endpoint.Addrs = append(b.endpoint.Addrs, a.endpoint.Addrs[0])
		h.Apply(context.Background(), []Endpoint{a.endpoint, b.endpoint})
		mustLead := func(to string) {
			t.Helper()
			if route := strings.Join(netns.IP(t, "route", "show", a.endpoint.Addrs[0].String(), "proto", "80"), " "); !strings.Contains(route, "dev "+to) {
				t.Errorf("the route is %q, want it to lead to %s", route, to)
			}
		}
		mustLead("cali1")

		netns.IP(t, "link", "set", "cali1", "alias", "calico net.c2.eth0")
		report, err := h.Apply(context.Background(), []Endpoint{a.endpoint, b.endpoint})
		want := map[string]string{"cali1": `interface cali1 is not of container c1: its alias is "calico net.c2.eth0"`, "cali2": ""}
		if diff := cmp.Diff(want, errorsOf(report)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff([]StaleLink{{"cali1", "calico net.c2.eth0"}}, report.Stale); diff != "" {
			t.Errorf("stale links (-want +got):\n%s", diff)
		}
		mustLead("cali2")
		for _, what := range []string{"route", "neigh"} {
			if left := strings.Join(netns.IP(t, what, "show", "dev", "cali1"), " "); strings.Contains(left, a.endpoint.Addrs[0].String()) {
				t.Errorf("%s by cali1 is left: %s", what, left)
			}
		}

		a.endpoint.Container = "c2"
		if _, err := h.ApplySome(context.Background(), []Endpoint{a.endpoint}, nil); err != nil {
			t.Fatal(err)
		}
		mustLead("cali1")
	})
}
