// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/resource"
)

// TestDefinitions: the API server takes the definitions of our kinds, and says itself what is wrong with an object.
func TestDefinitions(t *testing.T) {
	p := Control(t)
	text, err := os.ReadFile("../../../k8s-manifests/base/definitions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(string(text))
	p.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	for _, tt := range []struct{ doc, refusal string }{
		{"kind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.0.0.0/16, natOutgoing: true, vxlanMode: Always}", ""},
		{"kind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.1.0.0/16}", "it can't change: make a new pool"},
		{"kind: IPPool\nmetadata: {name: b}\nspec: {cidr: 10.0.0.0/16, ipipMode: Always, vxlanMode: Always}", "vxlanMode: a pool has ipipMode or vxlanMode, not both"},
		{"kind: IPPool\nmetadata: {name: b}\nspec: {cidr: 10.0.0.0/16, blocksize: 26}", `unknown field "spec.blocksize"`},
		{"kind: IPPool\nmetadata: {name: b}\nspec: {}", "spec.cidr: Required value"},
		{"kind: Tier\nmetadata: {name: default}\nspec: {order: 5}", "the tier default has order 1000000"},
		{"kind: Tier\nmetadata: {name: default}\nspec: {order: 1000000, defaultAction: Deny}", ""},
		{"kind: HostEndpoint\nmetadata: {name: a}\nspec: {node: n1}", "interfaceName: missing, and no expectedIPs"},
		{"kind: HostEndpoint\nmetadata: {name: a}\nspec: {node: n1, expectedIPs: [10.0.0.1]}", ""},
		{"kind: FelixConfiguration\nmetadata: {name: other}\nspec: {}", "want default, or node.<name>"},
		{"kind: FelixConfiguration\nmetadata: {name: node.n1}\nspec: {logSeverityScreen: DEBUG}", ""},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {bpfEnabled: true}", "want false: there is no eBPF data path"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {iptablesRefreshInterval: 91s}", "want 90s or 180s: write nftablesRefreshInterval"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {deviceRouteProtocol: 3}", "want 80: "},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {kubeNodePortRanges: ['1:2']}", "want 30000:32767: "},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {workloadSourceSpoofing: Any}", "want Disabled: "},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {logFilePath: /x}", "etcd doesn't decide on it"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {logSeverityScreen: loud}", "should match"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {reportingTTL: soon}", "should match"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {reportingTTL: 1}", "should be greater than or equal to 5"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {vxlanMTU: 67}", "want 0, or 68 to 65535"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {failsafeInboundHostPorts: 'tcp:22'}", "must be of type array"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {failsafeInboundHostPorts: [{port: 22, net: 10.0.0.0/8}]}", "such a port is open to all addresses"},
		{"kind: BGPConfiguration\nmetadata: {name: default}\nspec: {serviceClusterIPs: [{cidr: 10.96.0.0/12}]}", "addresses of services are not advertised yet"},
		{"kind: BGPConfiguration\nmetadata: {name: other}\nspec: {}", "metadata.name: want default"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: knp.default.x}\nspec: {}", "are those of Kubernetes' own policies"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {selector: all(), preDNAT: true, doNotTrack: true}", "preDNAT or doNotTrack, not both"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {ingress: [{action: Allow, destination: {ports: [80]}}]}", "destination.ports: needs protocol TCP"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {ingress: [{action: Allow, protocol: 47, source: {notPorts: [80]}}]}", "source.notPorts: needs protocol TCP"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {ingress: [{action: Allow, protocol: ICMP, icmp: {code: 1}}]}", "type: missing"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {ingress: [{action: Allow, icmp: {type: 8}}]}", "icmp: needs protocol ICMP or ICMPv6"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {ingress: [{action: Allow, protocol: ICMP, icmp: {type: 255}}]}", "should be less than or equal to 254"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {ingress: [{action: Perhaps}]}", `Unsupported value: "Perhaps"`},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {ingress: [{action: Allow, http: {methods: [GET]}}]}", "http: http needs a proxy: not supported"},
		{"kind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {ingress: [{action: Allow, sorce: {}}]}", `unknown field "spec.ingress[0].sorce"`},
		{"kind: NetworkPolicy\nmetadata: {name: x, namespace: default}\nspec: {ingress: [{action: Allow, protocol: 6, destination: {ports: [80, '90:91', http]}, metadata: {annotations: {a: b}}}]}", ""},
		{"kind: BGPPeer\nmetadata: {name: x}\nspec: {peerIP: 192.0.2.1, asNumber: 64512, ttlSecurity: 300}", "should be less than or equal to 254"},
		{"kind: BGPPeer\nmetadata: {name: x}\nspec: {peerIP: 192.0.2.1, asNumber: '1.10', password: {secretKeyRef: {name: a, key: b}}}", "password: "},
	} {
		out, err := p.TryKubectl("apiVersion: projectcalico.org/v3\n"+tt.doc, "apply", "-f", "-")
		switch {
		case tt.refusal == "" && err != nil:
			t.Errorf("%s:\n%v", tt.doc, err)
		case tt.refusal != "" && (err == nil || !strings.Contains(err.Error(), tt.refusal)):
			t.Errorf("%s:\n%s%v, want %s", tt.doc, out, err, tt.refusal)
		}
	}
	// Documents as Calico prints them are taken: as calicoctl takes them, too.
	p.Kubectl("create", "namespace", "shop")
	files, err := filepath.Glob("../../resource/testdata/calico/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all, err := resource.Decode(file, data)
		if err != nil {
			t.Fatal(err)
		}
		for i, doc := range documents(t, data) {
			if !slices.ContainsFunc(resource.CustomKinds(), func(k *resource.Kind) bool { return k.Name == all[i].Kind }) {
				continue
			}
			if _, err := p.TryKubectl(doc, "apply", "--dry-run=server", "-f", "-"); err != nil {
				t.Errorf("%s: %v", all[i].Title(), err)
			}
		}
	}
	if out := p.Kubectl("explain", "globalnetworkpolicies.spec.ingress.source"); !strings.Contains(out, "notSelector") {
		t.Errorf("kubectl explain: %s", out)
	}
}

// documents returns the objects of a file, those of its lists by themselves, and without what another store has made of them.
func documents(t *testing.T, data []byte) (all []string) {
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		items, is := doc["items"].([]any)
		if !is {
			items = []any{doc}
		}
		for _, item := range items {
			delete(item.(map[string]any)["metadata"].(map[string]any), "resourceVersion") // kubectl's is about the object that is there
			one, err := json.Marshal(item)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(one))
		}
	}
	return all
}
