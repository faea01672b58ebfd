// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/test/netns"
)

// TestRouteFields: host-local returns routes with all fields that CNI 1.1.0 added.
func TestRouteFields(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	routes := []any{
		map[string]any{"dst": "0.0.0.0/0", "mtu": 1400, "advmss": 1300},
		map[string]any{"dst": "10.9.0.0/16", "gw": "10.8.0.1", "priority": 100, "mtu": 9000},
		map[string]any{"dst": "10.7.0.0/16", "table": 100},
		map[string]any{"dst": "10.6.0.0/16", "scope": 253},
		map[string]any{"dst": "fd09::/64", "priority": 2000},
		map[string]any{"dst": "fd07::/64", "table": 1000, "scope": 253},
	}
	const v4, v6 = `"gw":"169.254.1.1"`, `"gw":"fe80::ecee:eeff:feee:eeee"`
	all := []string{
		`{"advmss":1300,"dst":"0.0.0.0/0",` + v4 + `,"mtu":1400}`,
		`{"dst":"10.9.0.0/16",` + v4 + `,"priority":100}`,
		`{"dst":"10.7.0.0/16",` + v4 + `,"table":100}`,
		`{"dst":"10.6.0.0/16","scope":253}`,
		`{"dst":"fd09::/64",` + v6 + `,"priority":2000}`,
		`{"dst":"fd07::/64",` + v6 + `,"table":1000}`,
	}
	older := []string{
		`{"dst":"0.0.0.0/0",` + v4 + `}`, `{"dst":"10.9.0.0/16",` + v4 + `}`, `{"dst":"10.6.0.0/16"}`, `{"dst":"fd09::/64",` + v6 + `}`,
	}
	for _, tt := range []struct {
		version string
		include bool
		want    []string
	}{
		{"1.1.0", false, all},
		{"1.1.0", true, append([]string{`{"dst":"::/0",` + v6 + `}`}, all...)},
		{"1.0.0", false, older},
		{"0.4.0", false, older},
	} {
		conf, _ := r.hostLocal(map[string]any{"routes": routes, "cniVersion": tt.version, "include_default_routes": tt.include, "mtu": 1500})
		c := call(r.pod(strings.ReplaceAll(tt.version, ".", "-")+map[bool]string{true: "-include"}[tt.include]), conf)
		reply := r.must(c)
		var result struct{ Routes []json.RawMessage }
		if err := json.Unmarshal(reply.Stdout, &result); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, raw := range result.Routes {
			got = append(got, strings.NewReplacer(" ", "", "\n", "").Replace(string(raw)))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: the result (-want +got):\n%s", tt.version, diff)
		}
		var held []string
		for _, args := range [][]string{{"-4", "route"}, {"-4", "route", "show", "table", "100"}, {"-6", "route"}, {"-6", "route", "show", "table", "1000"}} {
			if err := r.namespace(c.Netns).Do(func() error {
				held = append(held, netns.IP(t, args...)...)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{
			"default via 169.254.1.1 dev eth0 mtu 1400 advmss 1300", "10.9.0.0/16 via 169.254.1.1 dev eth0 metric 100",
			"10.7.0.0/16 via 169.254.1.1 dev eth0", "10.6.0.0/16 dev eth0 scope link",
			"fd09::/64 via fe80::ecee:eeff:feee:eeee dev eth0 metric 2000 pref medium", "fd07::/64 via fe80::ecee:eeff:feee:eeee dev eth0 metric 1024 pref medium",
		} {
			if !slices.ContainsFunc(held, func(line string) bool { return strings.TrimSpace(strings.ReplaceAll(line, "proto boot ", "")) == want }) {
				t.Errorf("%s: the pod lacks %q: %q", tt.version, want, held)
			}
		}
		r.must(verb("CHECK", withResult(r, c, reply)))
		if tt.version == "1.1.0" && !tt.include {
			if err := r.namespace(c.Netns).Do(func() error {
				netns.IP(t, "route", "del", "10.7.0.0/16", "table", "100")
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			r.fails(verb("CHECK", withResult(r, c, reply)), 107, "the container has no route to 10.7.0.0/16 by 169.254.1.1 of table 100")
		}
		r.must(verb("DEL", c))
		r.empty()
	}
}

// TestRoutesThatMakeNoSense: for invalid routes nothing is assigned.
func TestRoutesThatMakeNoSense(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	netns := r.pod("pod")
	for fields, want := range map[string]string{
		`"mtu":-1`:                    "mtu -1: want 0 to 65535",
		`"mtu":20`:                    "mtu 20: want 68 to 65535",
		`"priority":-5`:               "priority -5: want 0 to 4294967295",
		`"table":255`:                 "table 255 is the kernel's, of local addresses: want another, or none for the main one",
		`"scope":9`:                   "scope 9: want 0 (global), 200 (site), 253 (link) or 254 (host)",
		`"scope":1000`:                "scope 1000: want 0 to 255",
		`"scope":253,"gw":"10.8.0.1"`: "scope 253 has no gateway, and it names 10.8.0.1: drop one of the two",
	} {
		conf, dir := r.hostLocal(map[string]any{"routes": []json.RawMessage{json.RawMessage(`{"dst":"10.9.0.0/16",` + fields + `}`)}})
		c := call(netns, conf)
		r.fails(c, 7, "the IPAM plugin host-local gave a route to 10.9.0.0/16: "+want)
		r.must(verb("DEL", c))
		r.nothingDelegated(dir)
	}
}
