// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestUnknownFieldsOfSamples holds the lists of known fields to what was ever written, older forms included.
func TestUnknownFieldsOfSamples(t *testing.T) {
	later := "testdata/policy/field-of-a-later-version.json"
	eachSample(t, func(file, dir string, data []byte) {
		err := model.UnknownFields(sampleKey(t, dir), data)
		if (err != nil) != (file == later) {
			t.Errorf("%s: %v", file, err)
		}
	})
}

func TestUnknownFields(t *testing.T) {
	const pool, policy = "/calico/v1/ipam/v4/pool/10.0.0.0-16", "/calico/v1/policy/tier/default/policy/p"
	for _, tt := range []struct{ key, value, want string }{
		{pool, `{"cidr":"10.0.0.0/16","disable":true,"vxlan":"always","node_selecter":"x","blocksize":28}`,
			"disable, vxlan, node_selecter, blocksize: unknown, and passed over: want one of cidr, ipip, ipip_mode, vxlan_mode, masquerade, ipam, disabled, block_size, node_selector"},
		{pool, `{"CIDR":{"a":[1,{"b":2}]},"a":1,"b":2,"c":3,"d":4,"":5}`, "CIDR, a, b, c and 2 more: "},
		{policy, `{"selector":"","inboundrules":[],"type":[],"meta":{"a":1},"untrackd":true}`, "inboundrules, type: "}, // the last makes it invalid
		{pool, `{"Cidr":1}`, "Cidr: "}, // also of what does not parse
		{pool, `{"a b":1}`, `"a b": `},
		{"/calico/v1/policy/profile/p/rules", `{"inbound":[]}`, "inbound: "},
		{"/calico/v1/policy/tier/default/metadata", `{"ordre":1}`, "ordre: "},
		{"/calico/v1/host/a/endpoint/e", `{"name":"eth0","profiles":[]}`, "profiles: "},
		{"/calico/bgp/v1/global/peer_v4/192.0.2.1", `{"as_num":1,"imports":[]}`, "imports: "},
		{"/calico/bgp/v1/global/node_mesh", `{"enabled":true,"x":1}`, "x: "},
		{"/calico/ipam/v2/config", `{"strictAffinity":true}`, "strictAffinity: unknown, and passed over: want one of strict_affinity, auto_allocate_blocks"},

		{policy, `{"selector":"","inbound_rules":[{"x":1}]}`, ""}, // the rule is invalid
		{policy, `{"selector":`, ""},
		{policy, "[]", ""},
		{"/calico/v1/policy/profile/p/labels", `{"any":"a"}`, ""},
		{"/calico/v1/policy/profile/p/tags", `["any"]`, ""},
		{"/calico/v1/host/a/metadata", `{"x":1}`, ""},
		{"/calico/v1/host/a/workload/k8s/w/endpoint/e", `{"x":1}`, ""},
		{"/calico/ipam/v2/handle/h", `{"x":1}`, ""},
	} {
		k, err := model.ParseKey(tt.key)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := model.UnknownFields(k, []byte(tt.value)); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.key, tt.value, got, tt.want)
		}
	}
}

func TestUnknownKey(t *testing.T) {
	const passedOver = "nothing is known of this key, and it is passed over: want, below /calico/bgp/v1/"
	const global = passedOver + "global/, one of as_num, node_mesh, peer_v4/<address>, peer_v6/<address>"
	const host = passedOver + "host/<host>/, one of peer_v4/<address>, peer_v6/<address>, ip_addr_v4, ip_addr_v6, as_num, network_v4, route_reflector_cluster_id"
	for _, tt := range []struct{ path, host, want string }{
		{"/calico/bgp/v1/global/as_numm", "", global},
		{"/calico/bgp/v1/global/as_num/", "", global},
		{"/calico/bgp/v1/global/peers_v4/192.0.2.1", "", global},
		{"/calico/bgp/v1/global/custom_filter/v4/a", "", global},
		{"/calico/bgp/v1/host/a/peer_v4", "a", host},
		{"/calico/bgp/v1/host/a%2fb/as_number", "a/b", host},
		{"/calico/bgp/v1/host/a%/as_number", "a%", host},
		{"/calico/bgp/v1/hosts/a/as_num", "", passedOver + ", global/<name>, host/<host>/<name>, peer/<name> or filter/<name>"},
		{"/calico/bgp/v1/as_num", "", passedOver + ", global/<name>, host/<host>/<name>, peer/<name> or filter/<name>"},
		{"/calico/ipam/v2/assignment/ipv4/block/10.65.3.0-26/x", "", "nothing is known of this key, and it is passed over: want, below /calico/ipam/v2/assignment/ipv4/block/, a CIDR with - for /"},
		{"/calico/felix/v1/host/a/stat", "a", "nothing is known of this key, and it is passed over: want, below /calico/felix/v1/host/<host>/, one of status, last_reported_status, workload/<name>/<name>/endpoint/<name>, endpoint/<name>"},
		{path: "/calico/ipam/v2/assignment/ipv6/block/10.65.300.0-26"},
		{path: "/calico/felix/v1/host/a/status"},
		{path: "/calico/bgp/v1/global/as_num"},
		{path: "/calico/bgp/v1/host/a/as_num"},
		{path: "/calico/bgp/v1/global/peer_v4/x"}, // it says what is wrong with it itself
		{path: "/calico/bgp/v1/global/loglevel"},
		{path: "/calico/bgp/v1/global/custom_filters/v4/lo"},
		{path: "/calico/bgp/v1/host/a"},
		{path: "/calico/bgp/v1/host/a/network_v6"},
		{path: "/calico/bgp/v1/rr_v4/192.0.2.1"},
		{path: "/calico/v1/nothing"},
		{path: "/other/bgp/v1/global/as_numm"},
		{path: ""},
	} {
		got := ""
		host, err := model.UnknownKey(tt.path)
		if err != nil {
			got = err.Error()
		}
		if host != tt.host || got != tt.want {
			t.Errorf("%s:\n got %q %s\nwant %q %s", tt.path, host, got, tt.host, tt.want)
		}
	}
}

func BenchmarkUnknownFields(b *testing.B) {
	data := []byte(`{"selector":"a","inbound_rules":[` + strings.Repeat(`{"action":"allow","protocol":"tcp","src_selector":"app == 'front'","dst_ports":[80,"8000:8099"]},`, 9) + `{}]}`)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := model.UnknownFields(model.PolicyKey{"default", "p"}, data); err != nil {
			b.Fatal(err)
		}
	}
}
