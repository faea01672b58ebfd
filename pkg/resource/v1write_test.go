// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// TestOlder: what is stored is printed as documents of v1, with a note of what they lack; applied, these change nothing, and changed, only
// what they say.
func TestOlder(t *testing.T) {
	for name, tc := range map[string]struct {
		stored      []string // key and value
		older, lost string
		from, to    string   // a change of the document
		now         []string // values that are written then
	}{
		"pool": {
			stored: []string{"/calico/v1/ipam/v4/pool/10.0.0.0-16", `{"cidr":"10.0.0.0/16","ipip":"tunl0","ipip_mode":"cross-subnet","masquerade":true,"block_size":28,"allowed_uses":["Tunnel"],"node_selector":"rack == 'a'","meta":{"name":"pods","annotations":{"a":"b"}}}`},
			older:  "kind: ipPool\nmetadata: {cidr: 10.0.0.0/16}\nspec: {ipip: {enabled: true, mode: cross-subnet}, nat-outgoing: true, blockSize: 28, vxlanMode: Never}",
			lost:   "metadata.annotations metadata.name spec.allowedUses spec.nodeSelector",
			from:   `"nat-outgoing":true`, to: `"disabled":true`,
			now: []string{`{"cidr":"10.0.0.0/16","ipip":"tunl0","ipip_mode":"cross-subnet","masquerade":false,"disabled":true,"block_size":28,"node_selector":"rack == 'a'","allowed_uses":["Tunnel"],"meta":{"name":"pods","annotations":{"a":"b"}}}`},
		},
		"policy": {
			stored: []string{"/calico/v1/policy/tier/net/policy/web", `{"order":0.5,"selector":"has(calico/k8s_ns) && (app == 'web')","inbound_rules":[{"action":"next-tier","!protocol":"udp","src_selector":"calico/k8s_ns == 'a'","log_prefix":"web"},{"action":"allow","protocol":"tcp","src_tag":"t","src_nets":["10.0.0.0/8","11.0.0.0/8"],"dst_ports":[80,"90:99"]}],"outbound_rules":[],"types":["inbound"]}`},
			older: `kind: policy
metadata: {name: web, tier: net}
spec:
  order: 0.5
  selector: has(calico/k8s_ns) && (app == 'web')
  types: [ingress]
  ingress:
  - {action: pass, notProtocol: udp, source: {selector: calico/k8s_ns == 'a'}}
  - {action: allow, protocol: tcp, source: {tag: t, nets: [10.0.0.0/8, 11.0.0.0/8]}, destination: {ports: [80, "90:99"]}}`,
			lost: "spec.ingress[0].logPrefix",
			from: `"order":0.5`, to: `"order":3`,
			now: []string{`{"selector":"has(calico/k8s_ns) && (app == 'web')","order":3,"inbound_rules":[{"action":"next-tier","src_selector":"calico/k8s_ns == 'a'","!protocol":"udp","log_prefix":"web"},{"action":"allow","protocol":"tcp","src_tag":"t","src_nets":["10.0.0.0/8","11.0.0.0/8"],"dst_ports":[80,"90:99"]}],"outbound_rules":[],"types":["inbound"]}`},
		},
		"profile": {
			stored: []string{"/calico/v1/policy/profile/p/rules", `{"inbound_rules":[{"action":"allow","icmp_type":8,"protocol":"icmp"}],"outbound_rules":[]}`,
				"/calico/v1/policy/profile/p/labels", `{"a":"b"}`, "/calico/v1/policy/profile/p/tags", `["t"]`},
			older: "kind: profile\nmetadata: {name: p, labels: {a: b}, tags: [t]}\nspec: {ingress: [{action: allow, protocol: icmp, icmp: {type: 8}}]}",
			from:  `"tags":["t"]`, to: `"tags":["t","u"]`, now: []string{`["t","u"]`},
		},
		"host endpoint": {
			stored: []string{"/calico/v1/host/a/endpoint/uplink", `{"name":"eth0","expected_ipv4_addrs":["192.0.2.1"],"profile_ids":["p"],"labels":{"a":"b"}}`},
			older:  "kind: hostEndpoint\nmetadata: {name: uplink, node: a, labels: {a: b}}\nspec: {interfaceName: eth0, expectedIPs: [192.0.2.1], profiles: [p]}",
			from:   `"labels":{"a":"b"},`, now: []string{`{"name":"eth0","expected_ipv4_addrs":["192.0.2.1"],"profile_ids":["p"]}`},
		},
		"workload": {
			stored: []string{"/calico/v1/host/a/workload/vm/m1/endpoint/eth0", `{"state":"active","name":"tap1","mac":"02:00:00:00:00:01","profile_ids":["p"],"ipv4_nets":["10.0.0.9/32"],"container_id":"c"}`},
			older:  "kind: workloadEndpoint\nmetadata: {name: eth0, node: a, orchestrator: vm, workload: m1, activeInstanceID: c}\nspec: {interfaceName: tap1, ipNetworks: [10.0.0.9/32], mac: '02:00:00:00:00:01', profiles: [p]}",
		},
		"pod": {
			stored: []string{"/calico/v1/host/a/workload/k8s/shop.web-0/endpoint/eth0", `{"state":"active","name":"cali1","mac":"02:00:00:00:00:01","profile_ids":["k8s_ns.shop"],"ipv4_nets":["10.0.0.9/32"]}`},
			older:  "kind: workloadEndpoint\nmetadata: {name: eth0, node: a, orchestrator: k8s, workload: shop.web-0}\nspec: {interfaceName: cali1, ipNetworks: [10.0.0.9/32], mac: '02:00:00:00:00:01', profiles: [k8s_ns.shop]}",
		},
		"peer": {
			stored: []string{"/calico/bgp/v1/host/a/peer_v4/192.0.2.9", `{"ip":"192.0.2.9","as_num":"64513","keepalive_time":10,"meta":{"name":"tor"}}`},
			older:  "kind: bgpPeer\nmetadata: {scope: node, node: a, peerIP: 192.0.2.9}\nspec: {asNumber: 64513}",
			lost:   "metadata.name spec.keepaliveTime",
			from:   "64513", to: "64514", now: []string{`{"ip":"192.0.2.9","as_num":"64514","keepalive_time":10,"meta":{"name":"tor"}}`},
		},
		"node": {
			stored: []string{"/calico/v1/host/a/metadata", `{"labels":{"rack":"1"}}`, "/calico/bgp/v1/host/a/ip_addr_v4", "192.0.2.1", "/calico/bgp/v1/host/a/network_v4", "192.0.2.0/24", "/calico/v1/host/a/config/IpInIpTunnelAddr", "10.0.0.1"},
			older:  "kind: node\nmetadata: {name: a}\nspec: {bgp: {ipv4Address: 192.0.2.1/24, ipv4IPIPTunnelAddr: 10.0.0.1}}",
			lost:   "metadata.labels",
			from:   `"ipv4Address"`, to: `"asNumber":64513,"ipv4Address"`, now: []string{"64513"},
		},
	} {
		var entries []model.Entry
		for i := 0; i < len(tc.stored); i += 2 {
			entries = append(entries, entry(t, tc.stored[i], []byte(tc.stored[i+1]), int64(i+5)))
		}
		var want any
		if err := yaml.Unmarshal([]byte("apiVersion: v1\n"+tc.older), &want); err != nil {
			t.Fatal(err)
		}
		for _, kind := range resource.Kinds() {
			for _, s := range kind.All(entries) {
				if s.Err != nil {
					t.Fatal(s.Err)
				}
				if kind.MayOlder() != nil || s.Metadata.Name == "default" {
					continue
				}
				o, err := s.Older()
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				data, err := yaml.Marshal(o.Document)
				if err != nil {
					t.Fatal(err)
				}
				var got any
				if err := yaml.Unmarshal(data, &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
				if diff := cmp.Diff(tc.lost, strings.Join(o.Lost, " ")); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
				data, err = yaml.YAMLToJSON(data)
				if err != nil {
					t.Fatal(err)
				}
				if values := writes(t, kind, entries, string(data)); len(values) > 0 {
					t.Errorf("%s: it is written again: %s", name, values)
				}
				if tc.from == "" {
					continue
				}
				changed := strings.Replace(string(data), tc.from, tc.to, 1)
				if diff := cmp.Diff(tc.now, writes(t, kind, entries, changed)); diff != "" {
					t.Errorf("%s: %s: %s", name, changed, diff)
				}
			}
		}
	}
}

// writes returns the values that applying a document writes.
func writes(t *testing.T, kind *resource.Kind, entries []model.Entry, document string) (values []string) {
	t.Helper()
	all, err := resource.Decode("doc", []byte(document))
	if err != nil {
		t.Error(err)
		return nil
	}
	change, _, err := kind.Write(kind.Ranges(), entries, all[0], resource.Apply)
	if err != nil || len(change.Deletes) > 0 {
		t.Errorf("%s: %v, deletes %v", document, err, change.Deletes)
	}
	for _, put := range change.Puts {
		text, err := model.FormatValue(put.Value)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(text))
	}
	return values
}

// TestNotOlder: what v1 would say otherwise is not said in v1.
func TestNotOlder(t *testing.T) {
	for path, value := range map[string]string{
		"/calico/bgp/v1/peer/p": `{"ip":"192.0.2.9","as_num":"64513","node_selector":"has(rack)"}`,
		"/calico/bgp/v1/peer/q": `{"peer_selector":"has(rr)"}`,
	} {
		kind, err := resource.Find("bgppeer")
		if err != nil {
			t.Fatal(err)
		}
		entries := []model.Entry{entry(t, path, []byte(value), 5)}
		if o, err := kind.All(entries)[0].Older(); err == nil {
			t.Errorf("%s: %v", value, o.Document)
		}
		if values := writes(t, kind, entries, `{"apiVersion":"v1","kind":"bgpPeer","metadata":{"scope":"global","peerIP":"192.0.2.9"},"spec":{"asNumber":1}}`); len(values) != 1 || strings.Contains(values[0], "selector") {
			t.Errorf("a peer of all nodes is written as %s", values)
		}
	}
	for _, kind := range resource.Kinds() {
		if err := kind.MayOlder(); (err == nil) != strings.Contains(" IPPool GlobalNetworkPolicy Profile HostEndpoint WorkloadEndpoint BGPPeer Node ", " "+kind.Name+" ") {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}
