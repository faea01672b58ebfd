// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

func clusterOf(t *testing.T, objects map[string]string) *Cluster {
	t.Helper()
	var entries []model.Entry
	for path, value := range objects {
		e := model.Entry{Path: path, Revision: 1}
		var err error
		if e.Key, err = model.ParseKey(path); err != nil {
			t.Fatal(err)
		}
		e.Value, e.Err = model.ParseValue(e.Key, []byte(value))
		entries = append(entries, e)
	}
	return New(entries)
}

// TestWays: which of a host's interfaces a packet from or to the host takes, according to its host endpoints.
func TestWays(t *testing.T) {
	const first, second = "172.16.0.1", "192.0.2.1"
	for _, c := range []struct {
		one, two string // host endpoints
		own      string
		want     []string
	}{
		{`{"name": "*"}`, `{"name": "vxlan.calico"}`, first, []string{elsewhere}},
		{`{"name": "eth0"}`, `{"name": "eth1"}`, first, []string{elsewhere, "eth0", "eth1"}},
		{`{"name": "eth0", "expected_ipv4_addrs": ["172.16.0.1"]}`, `{"name": "eth1"}`, first, []string{"eth0"}},
		{`{"name": "eth0", "expected_ipv4_addrs": ["172.16.0.1"]}`, `{"expected_ipv4_addrs": ["172.16.0.1"]}`, first, []string{"eth0"}},
		{`{"name": "*", "expected_ipv4_addrs": ["172.16.0.1"]}`, `{"name": "eth1"}`, first, []string{elsewhere, "eth1"}},
		{`{"expected_ipv4_addrs": ["172.16.0.1"]}`, `{"expected_ipv4_addrs": ["192.0.2.1"]}`, first, []string{"the interface of 172.16.0.1"}},
		{`{"expected_ipv4_addrs": ["172.16.0.1"]}`, `{"expected_ipv4_addrs": ["192.0.2.1"]}`, second, []string{"the interface of 192.0.2.1"}},
		{`{"expected_ipv4_addrs": ["172.16.0.1"]}`, `{"name": "eth1"}`, second, []string{elsewhere, "eth1"}},
		// It denies everything there until it can be read.
		{`{"name": "eth0", "expected_ipv4_addrs": ["172.16.0.1"], "labels": 5}`, `{"name": "eth1"}`, first, []string{"eth0"}},
		// A pod's packets take the host's own interface.
		{`{"expected_ipv4_addrs": ["172.16.0.1"]}`, `{"name": "eth1"}`, "10.0.0.1", []string{"the interface of 172.16.0.1"}},
	} {
		cluster := clusterOf(t, map[string]string{
			"/calico/v1/host/a/metadata": "{}", "/calico/bgp/v1/host/a/ip_addr_v4": first, "/calico/v1/host/a/endpoint/1": c.one, "/calico/v1/host/a/endpoint/2": c.two,
			"/calico/v1/host/a/workload/cni/web/endpoint/eth0": `{"state": "active", "name": "cali1", "mac": "", "profile_ids": [], "ipv4_nets": ["10.0.0.1/32"], "ipv6_nets": []}`,
		})
		if diff := cmp.Diff(c.want, cluster.ways("a", "", netip.MustParseAddr(c.own))); diff != "" {
			t.Errorf("%s, %s, from %s (-want +got):\n%s", c.one, c.two, c.own, diff)
		}
	}
}

// TestTunnelled: packets through a tunnel are judged by the host endpoint of the tunnel's device, and by *, not by others.
func TestTunnelled(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		want     policy.Verdict
	}{
		{`{"name": "vxlan.calico"}`, policy.Drop}, {`{"name": "*"}`, policy.Drop}, {`{"name": "eth0"}`, policy.Accept}, {`{"expected_ipv4_addrs": ["172.16.0.1"]}`, policy.Accept},
	} {
		cluster := clusterOf(t, map[string]string{
			"/calico/v1/ipam/v4/pool/10.0.0.0-16": `{"cidr": "10.0.0.0/16", "vxlan_mode": "always"}`, "/calico/v1/host/a/config/IPv4VXLANTunnelAddr": "10.0.0.64",
			"/calico/v1/host/a/metadata": "{}", "/calico/bgp/v1/host/a/ip_addr_v4": "172.16.0.1", "/calico/v1/host/b/metadata": "{}", "/calico/v1/host/a/endpoint/1": c.endpoint,
			"/calico/v1/host/b/workload/cni/web/endpoint/eth0": `{"state": "active", "name": "cali1", "mac": "", "profile_ids": ["open"], "ipv4_nets": ["10.0.0.1/32"], "ipv6_nets": []}`,
			"/calico/v1/policy/profile/open/rules":             `{"inbound_rules": [{}]}`,
		})
		from, err := cluster.Find("a", "")
		if err != nil {
			t.Fatal(err)
		}
		to, err := cluster.Find("web", "")
		if err != nil {
			t.Fatal(err)
		}
		hops, err := cluster.Follow(Flow{From: from, To: to, Protocol: model.ProtocolTCP, Port: 80})
		if err != nil || hops[0].Verdict != c.want || hops[0].Source != netip.MustParseAddr("10.0.0.64") {
			t.Errorf("%s: %v, %s: want %s", c.endpoint, err, fmt.Sprintf("%+v", hops), c.want)
		}
	}
}

// TestUntracked: what an untracked policy allows is allowed only if its answers are, too.
func TestUntracked(t *testing.T) {
	for _, c := range []struct {
		name, in, out string
		protocol      model.Protocol
		want          policy.Verdict
	}{
		{"no egress", `[{"action": "allow"}]`, `[]`, model.ProtocolTCP, policy.Drop},
		{"egress to others", `[{"action": "allow"}]`, `[{"action": "allow", "protocol": "tcp", "src_ports": [81]}]`, model.ProtocolTCP, policy.Drop},
		{"answers", `[{"action": "allow"}]`, `[{"action": "allow", "protocol": "tcp", "src_ports": [80]}]`, model.ProtocolTCP, policy.Accept},
		{"ping's answers", `[{"action": "allow"}]`, `[{"action": "allow", "protocol": "icmp", "icmp_type": 0}]`, 0, policy.Accept},
		{"no answer to a ping", `[{"action": "allow"}]`, `[{"action": "allow", "protocol": "icmp", "icmp_type": 8}]`, 0, policy.Drop},
		// To connection tracking the answer is a connection of its own, which the profile allows.
		{"UDP", `[{"action": "allow"}]`, `[]`, model.ProtocolUDP, policy.Accept},
	} {
		cluster := clusterOf(t, map[string]string{
			"/calico/v1/host/a/metadata": "{}", "/calico/bgp/v1/host/a/ip_addr_v4": "172.16.0.1", "/calico/v1/host/b/metadata": "{}", "/calico/bgp/v1/host/b/ip_addr_v4": "172.16.0.2",
			"/calico/v1/host/b/endpoint/1":                  `{"name": "*", "labels": {"all": ""}, "profile_ids": ["open"]}`,
			"/calico/v1/policy/profile/open/rules":          `{"inbound_rules": [{}], "outbound_rules": [{}]}`,
			"/calico/v1/policy/tier/default/policy/gnp-one": fmt.Sprintf(`{"order": 1, "selector": "has(all)", "untracked": true, "inbound_rules": %s, "outbound_rules": %s}`, c.in, c.out),
		})
		from, err := cluster.Find("a", "")
		if err != nil {
			t.Fatal(err)
		}
		to, err := cluster.Find("b", "")
		if err != nil {
			t.Fatal(err)
		}
		f := Flow{From: from, To: to, Protocol: c.protocol}
		if f.Protocol != 0 {
			f.Port = 80
		}
		hops, err := cluster.Follow(f)
		if err != nil || hops[len(hops)-1].Verdict != c.want {
			t.Errorf("%s: %v, %+v: want %s", c.name, err, hops, c.want)
		}
	}
}

// TestNetworkSets: rules match the networks of sets, which are among what is read.
func TestNetworkSets(t *testing.T) {
	const set = "/calico/v1/netset/office"
	if !slices.ContainsFunc(Ranges(), func(r model.Range) bool { return strings.HasPrefix(set, r.Path()) }) {
		t.Errorf("%s is not read", set)
	}
	cluster := clusterOf(t, map[string]string{
		"/calico/v1/host/b/metadata": "{}", "/calico/bgp/v1/host/b/ip_addr_v4": "172.16.0.2", set: `{"nets": ["192.0.2.0/24"], "labels": {"role": "known"}}`,
		"/calico/v1/host/b/workload/cni/web/endpoint/eth0": `{"state": "active", "name": "cali1", "mac": "", "profile_ids": [], "ipv4_nets": ["10.0.0.1/32"], "ipv6_nets": []}`,
		"/calico/v1/policy/tier/default/policy/known":      `{"selector": "all()", "inbound_rules": [{"src_selector": "role == 'known'"}]}`,
	})
	to, err := cluster.Find("web", "")
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]policy.Verdict{"192.0.2.9": policy.Accept, "198.51.100.9": policy.Drop} {
		end, err := cluster.Find(from, "")
		if err != nil {
			t.Fatal(err)
		}
		hops, err := cluster.Follow(Flow{From: end, To: to, Protocol: model.ProtocolTCP, Port: 80})
		if err != nil || len(hops) != 1 || hops[0].Verdict != want {
			t.Errorf("from %s: %v, %+v: want %s", from, err, hops, want)
		}
	}
}
