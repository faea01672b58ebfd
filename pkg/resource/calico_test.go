// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// calicos returns the resources of a document as Calico prints it, which must be right by themselves.
func calicos(t *testing.T, file string) []resource.Resource {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := resource.Decode(file, data)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if err := resource.Check(r); err != nil {
			t.Error(err)
		}
	}
	return all
}

// TestCalico: documents as Calico prints them are taken, stored, and printed so that they are read again.
func TestCalico(t *testing.T) {
	files, err := filepath.Glob("testdata/calico/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			entries := map[string]model.Entry{}
			for _, path := range []string{ // an agent's, which a document may repeat
				"/calico/v1/host/host-7/config/IpInIpTunnelAddr 10.70.0.1", "/calico/v1/host/host-7/config/IPv4VXLANTunnelAddr 10.70.0.2",
				"/calico/v1/host/host-7/config/IPv6VXLANTunnelAddr fd70::2", "/calico/v1/host/host-7/metadata {}",
				"/calico/v1/config/ClusterGUID 5f5f", "/calico/v1/config/ClusterType k8s,bgp", "/calico/v1/config/CalicoVersion v3.99.0",
			} {
				path, value, _ := strings.Cut(path, " ")
				entries[path] = entry(t, path, []byte(value), 3)
			}
			list := func() (all []model.Entry) {
				for _, e := range entries {
					all = append(all, e)
				}
				return all
			}
			for _, r := range calicos(t, file) {
				kinds[r.Kind] = true
				kind, err := resource.Find(r.Kind)
				if err != nil {
					t.Fatal(err)
				}
				change, _, err := kind.Write(kind.Ranges(), list(), r, resource.Apply)
				if err != nil || change.Empty() {
					t.Errorf("%s: %v, %v", r.Title(), change, err)
				}
				for _, put := range change.Puts {
					data, err := model.FormatValue(put.Value)
					if err != nil {
						t.Fatal(err)
					}
					entries[put.Key.Path()] = entry(t, put.Key.Path(), data, 7)
				}
				if change, _, err := kind.Write(kind.Ranges(), list(), r, resource.Apply); err != nil || !change.Empty() {
					t.Errorf("%s is written again: %v, %v", r.Title(), change.Puts, err)
				}
			}
			if n := printed(t, list()); n == 0 {
				t.Error("nothing is printed")
			}
		})
	}
	for _, k := range resource.Kinds() {
		if k.Name != "DHCPSubnet" && k.Name != "Tier" && !kinds[k.Name] { // ours, and one without anything of the sort
			t.Errorf("no document of %s", k.Name)
		}
	}
}

// TestCalicoSchema: the schemas accept such documents as well.
func TestCalicoSchema(t *testing.T) {
	files, err := filepath.Glob("testdata/calico/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.SplitSeq(string(data), "\n---\n") {
			var doc map[string]any
			if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
				t.Fatal(err)
			}
			items, ok := doc["items"].([]any)
			if !ok {
				items = []any{doc}
			}
			for _, item := range items {
				one := item.(map[string]any)
				maps.DeleteFunc(one["metadata"].(map[string]any), func(_ string, value any) bool { return value == nil })
				data, err := json.Marshal(one)
				if err != nil {
					t.Fatal(err)
				}
				if err := validate(t, schemas(t)[one["kind"].(string)], data); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}

// TestCalicoStored: what such documents store is what they mean.
func TestCalicoStored(t *testing.T) {
	want := map[string]string{
		"/calico/v1/config/FailsafeInboundHostPorts": "tcp:2222,udp:68", "/calico/v1/config/FailsafeOutboundHostPorts": "none",
		"/calico/v1/config/HealthPort": "9099", "/calico/v1/config/IpInIpMtu": "1400", "/calico/v1/config/LogSeverityScreen": "Info",
		"/calico/v1/config/ReportingIntervalSecs": "0s", "/calico/v1/config/ReportingTTLSecs": "1m30s", "/calico/v1/config/RouteRefreshInterval": "90s",
		"/calico/v1/config/VXLANMTU": "1410", "/calico/v1/config/VXLANMTUV6": "1390", "/calico/v1/config/VXLANPort": "4790", "/calico/v1/config/VXLANVNI": "4097",
		"/calico/bgp/v1/global/peer_v4/198.51.100.254":          `{"ip":"198.51.100.254","as_num":"65546","port":179,"meta":{"name":"tor"}}`,
		"/calico/bgp/v1/host/host-7/peer_v6/2001:db8:7::fe":     `{"ip":"2001:db8:7::fe","as_num":"64530","port":1790,"max_restart_time":120,"source_address":"none","meta":{"name":"tor-v6"}}`,
		"/calico/bgp/v1/peer/rack-1":                            `{"ip":"198.51.100.1","as_num":"64530","filters":["blocks","v6"],"node_selector":"rack == '1'"}`,
		"/calico/bgp/v1/peer/reflectors":                        `{"next_hop_mode":"self","node_selector":"all()","peer_selector":"has(route-reflector)","reverse_peering":"manual"}`,
		"/calico/bgp/v1/filter/blocks":                          `{"import_v4":[{"cidr":"0.0.0.0/0","match_operator":"Equal","action":"Reject"},{"communities":{"values":["64530:7"]},"as_path_prefix":["64530","64531"],"action":"Accept"}],"export_v4":[{"cidr":"10.70.0.0/16","match_operator":"In","prefix_length":{"min":24,"max":26},"action":"Accept"},{"source":"RemotePeers","peer_type":"eBGP","action":"Reject"}]}`,
		"/calico/bgp/v1/filter/v6":                              `{"import_v6":[{"cidr":"2001:db8::/32","match_operator":"NotIn","action":"Reject"}],"export_v6":[{"action":"Accept"}]}`,
		"/calico/v1/host/host-7/endpoint/host-7-all":            `{"name":"*","expected_ipv4_addrs":["198.51.100.7"],"profile_ids":["projectcalico-default-allow"],"labels":{"zone":"z1"}}`,
		"/calico/v1/host/host-7/workload/vms/vm1/endpoint/eth0": `{"state":"active","name":"cali7","profile_ids":[],"ipv4_nets":["10.70.0.9/32"],"ipv6_nets":[],"ports":[{"name":"www","protocol":"tcp","port":80}]}`,
		"/calico/v1/netset/partners":                            `{"nets":["198.51.100.0/24","203.0.113.7/32","2001:db8:7::/48"],"labels":{"role":"partner"},"meta":{"annotations":{"owner":"sales"}}}`,
		"/calico/v1/netset/shop%2Ffeeds":                        `{"nets":["192.0.2.0/24"],"labels":{"role":"feed"}}`,
		"/calico/v1/policy/profile/stage/labels":                `{"stage":"test"}`,
		"/calico/v1/policy/profile/stage/rules":                 `{"inbound_rules":[],"outbound_rules":[{"action":"allow"}]}`,
		"/calico/v1/policy/tier/default/policy/nodes":           `{"selector":"has(node-role)","order":7,"inbound_rules":[{"action":"allow","src_nets":["198.51.100.0/24","203.0.113.9/32"]}],"outbound_rules":[],"pre_dnat":true,"apply_on_forward":true,"types":["inbound"]}`,
		"/calico/v1/policy/tier/default/policy/shop%2Fweb":      `{"selector":"calico/k8s_ns == \"shop\" && (app == 'web')","inbound_rules":[],"outbound_rules":[{"action":"allow","protocol":"tcp","dst_ports":[443,"8000:8080"],"!dst_net":"2001:db8:7::/64"}],"types":["outbound"]}`,
	}
	got := map[string]string{}
	for _, file := range []string{"felixconfiguration", "bgpfilter", "bgppeer", "policy"} {
		for _, r := range calicos(t, "testdata/calico/"+file+".yaml") {
			kind, err := resource.Find(r.Kind)
			if err != nil {
				t.Fatal(err)
			}
			change, _, err := kind.Write(kind.Ranges(), nil, r, resource.Apply)
			if err != nil {
				t.Fatal(err)
			}
			for _, put := range change.Puts {
				data, err := model.FormatValue(put.Value)
				if err != nil {
					t.Fatal(err)
				}
				got[put.Key.Path()] = string(data)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
