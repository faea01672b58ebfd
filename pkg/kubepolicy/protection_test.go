// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestProtection is what etcd holds of it.
func TestProtection(t *testing.T) {
	stored := func(tunnels ...netip.Addr) map[string]string {
		got := map[string]string{}
		for _, p := range Protection([]model.Port{{Min: 2479, Max: 2479}, {Min: 9091, Max: 9091}}, tunnels) {
			text, err := model.FormatValue(p.Value)
			if err != nil {
				t.Fatal(err)
			}
			got[p.Key.Path()] = string(text)
			if _, err := model.ParseValue(p.Key, text); err != nil {
				t.Errorf("%s: %v", p.Key.Path(), err)
			}
		}
		return got
	}
	const tier = "/calico/v1/policy/tier/calico-host-protection/"
	want := map[string]string{
		tier + "metadata": `{"order":100,"default_action":"pass"}`,
		tier + "policy/nodes": `{"selector":"projectcalico.org/created-by == \"calico-controllers\"","inbound_rules":[{"action":"deny","protocol":"tcp","dst_ports":[2479,9091],` +
			`"!src_selector":"projectcalico.org/created-by == \"calico-controllers\""}],"outbound_rules":[],"types":["inbound"]}`,
		tier + "policy/pods": `{"selector":"has(calico/k8s_ns)","inbound_rules":[],"outbound_rules":[{"action":"deny","protocol":"tcp",` +
			`"dst_selector":"projectcalico.org/created-by == \"calico-controllers\"","dst_ports":[2479,9091]}],"types":["outbound"]}`,
	}
	if diff := cmp.Diff(want, stored()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want[tier+"policy/pods"] = strings.Replace(want[tier+"policy/pods"], "}],", `},{"action":"deny","protocol":"tcp","dst_nets":["10.0.0.1/32","fd00::1/128"],"dst_ports":[2479,9091]}],`, 1)
	if diff := cmp.Diff(want, stored(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"))); diff != "" {
		t.Errorf("with tunnels (-want +got):\n%s", diff)
	}
}

// TestProtectionOfMany: etcd has room for the tunnels of thousands of nodes.
func TestProtectionOfMany(t *testing.T) {
	tunnels := make([]netip.Addr, 15_000)
	addr := netip.MustParseAddr("fd00:1234:5678:9abc:def0:1234:5678:9abc")
	for i := range tunnels {
		tunnels[i], addr = addr, addr.Next()
	}
	for _, p := range Protection([]model.Port{{Min: 2479, Max: 2479}}, tunnels) {
		if _, err := model.FormatValue(p.Value); err != nil {
			t.Errorf("%s: %v", p.Key.Path(), err)
		}
	}
}

func TestNodeEndpoint(t *testing.T) {
	if e, ok := NodeEndpoint(Node{}); ok {
		t.Errorf("a node without an address has %+v", e)
	}
	e, ok := NodeEndpoint(Node{Addrs: []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}})
	text, err := model.FormatValue(e)
	want := `{"expected_ipv4_addrs":["10.0.0.1","10.0.0.2"],"expected_ipv6_addrs":["fd00::1"],"profile_ids":["projectcalico-default-allow"],"labels":{"projectcalico.org/created-by":"calico-controllers"}}`
	if !ok || err != nil || string(text) != want || !IsNodeEndpoint(e) {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
}
