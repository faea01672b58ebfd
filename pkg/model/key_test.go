// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// compare lets cmp look at values of the model.
var compare = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func ip(s string) netip.Addr     { return netip.MustParseAddr(s) }

// keys has each key of the data model, as stored.
var keys = []struct {
	path string
	key  model.Key
}{
	{"/calico/v1/Ready", model.ReadyKey{}},
	{"/calico/v1/config/IpInIpEnabled", model.GlobalConfigKey{"IpInIpEnabled"}},
	{"/calico/v1/host/a/config/IpInIpTunnelAddr", model.HostConfigKey{"a", "IpInIpTunnelAddr"}},
	{"/calico/v1/host/a/config/marker", model.HostConfigKey{"a", "marker"}},
	{"/calico/v1/host/a/metadata", model.HostMetadataKey{"a"}},
	{"/calico/v1/host/a/bird_ip", model.HostBirdIPKey{"a"}},
	{"/calico/v1/host/a/workload/k8s/default.web-0/endpoint/eth0", model.WorkloadEndpointKey{"a", "k8s", "default.web-0", "eth0"}},
	{"/calico/v1/host/a/workload/open%20stack/x%2Fy/endpoint/%E2%82%AC", model.WorkloadEndpointKey{"a", "open stack", "x/y", "€"}},
	{"/calico/v1/host/workload/workload/endpoint/workload/endpoint/endpoint", model.WorkloadEndpointKey{"workload", "endpoint", "workload", "endpoint"}},
	{"/calico/v1/host/a/endpoint/eth0", model.HostEndpointKey{"a", "eth0"}},
	{"/calico/v1/policy/profile/k8s_ns.default/rules", model.ProfileRulesKey{"k8s_ns.default"}},
	{"/calico/v1/policy/profile/k8s_ns.default/tags", model.ProfileTagsKey{"k8s_ns.default"}},
	{"/calico/v1/policy/profile/k8s_ns.default/labels", model.ProfileLabelsKey{"k8s_ns.default"}},
	{"/calico/v1/policy/tier/default/metadata", model.TierKey{"default"}},
	{"/calico/v1/policy/tier/default/policy/knp.a.b", model.PolicyKey{"default", "knp.a.b"}},
	{"/calico/v1/service/shop%2Fweb", model.ServiceKey{"shop/web"}},
	{"/calico/v1/netset/office", model.NetworkSetKey{"office"}},
	{"/calico/v1/netset/shop%2Foffice", model.NetworkSetKey{"shop/office"}},
	{"/calico/v1/ipam/v4/pool/10.0.0.0-16", model.PoolKey{cidr("10.0.0.0/16")}},
	{"/calico/v1/ipam/v6/pool/fd80:24e2:f998:72d6::-64", model.PoolKey{cidr("fd80:24e2:f998:72d6::/64")}},
	{"/calico/ipam/v2/assignment/ipv4/block/10.0.0.64-26", model.BlockKey{cidr("10.0.0.64/26")}},
	{"/calico/ipam/v2/assignment/ipv6/block/fd00::40-122", model.BlockKey{cidr("fd00::40/122")}},
	{"/calico/ipam/v2/handle/net.0a1b.eth0", model.HandleKey{ID: "net.0a1b.eth0"}},
	{"/calico/ipam/v2/assignment/handle/net.0a1b.eth0", model.HandleKey{ID: "net.0a1b.eth0", Legacy: true}},
	{"/calico/ipam/v2/host/a/ipv4/block/10.0.0.64-26", model.AffinityKey{"a", cidr("10.0.0.64/26")}},
	{"/calico/ipam/v2/host/a/ipv6/block/fd00::40-122", model.AffinityKey{"a", cidr("fd00::40/122")}},
	{"/calico/ipam/v2/config", model.IPAMConfigKey{}},
	{"/calico/ipam/v2/reservation/routers.rack-1", model.ReservationKey{"routers.rack-1"}},
	{"/calico/bgp/v1/global/as_num", model.BGPGlobalASKey{}},
	{"/calico/bgp/v1/global/node_mesh", model.BGPMeshKey{}},
	{"/calico/v1/config/bgp_node_mesh", model.BGPMeshKey{Legacy: true}},
	{"/calico/bgp/v1/global/peer_v4/192.0.2.1", model.BGPPeerKey{IP: ip("192.0.2.1")}},
	{"/calico/bgp/v1/global/peer_v6/2001:db8::1", model.BGPPeerKey{IP: ip("2001:db8::1")}},
	{"/calico/bgp/v1/host/a/peer_v4/192.0.2.1", model.BGPPeerKey{Host: "a", IP: ip("192.0.2.1")}},
	{"/calico/bgp/v1/host/a/peer_v6/2001:db8::1", model.BGPPeerKey{Host: "a", IP: ip("2001:db8::1")}},
	{"/calico/v1/config/bgp_peer_v4/192.0.2.1", model.BGPPeerKey{IP: ip("192.0.2.1"), Legacy: true}},
	{"/calico/v1/config/bgp_peer_v6/2001:db8::1", model.BGPPeerKey{IP: ip("2001:db8::1"), Legacy: true}},
	{"/calico/v1/host/a/bgp_peer_v4/192.0.2.1", model.BGPPeerKey{Host: "a", IP: ip("192.0.2.1"), Legacy: true}},
	{"/calico/v1/host/a/bgp_peer_v6/2001:db8::1", model.BGPPeerKey{Host: "a", IP: ip("2001:db8::1"), Legacy: true}},
	{"/calico/bgp/v1/peer/a%2Fb", model.BGPPeerKey{Name: "a/b"}},
	{"/calico/bgp/v1/filter/f", model.BGPFilterKey{"f"}},
	{"/calico/bgp/v1/host/a/ip_addr_v4", model.BGPHostKey{"a", model.BGPHostIPv4}},
	{"/calico/bgp/v1/host/a/ip_addr_v6", model.BGPHostKey{"a", model.BGPHostIPv6}},
	{"/calico/bgp/v1/host/a/as_num", model.BGPHostKey{"a", model.BGPHostAS}},
	{"/calico/bgp/v1/host/a/network_v4", model.BGPHostKey{"a", model.BGPHostNetworkV4}},
	{"/calico/bgp/v1/host/a/route_reflector_cluster_id", model.BGPHostKey{"a", model.BGPHostReflector}},
	{"/calico/felix/v1/host/a/status", model.StatusKey{"a"}},
	{"/calico/felix/v1/host/a/last_reported_status", model.LastStatusKey{"a"}},
	{"/calico/felix/v1/host/a/workload/k8s/default.web-0/endpoint/eth0", model.WorkloadStatusKey{"a", "k8s", "default.web-0", "eth0"}},
	{"/calico/felix/v1/host/a/endpoint/eth0", model.HostEndpointStatusKey{"a", "eth0"}},
	{"/calico/v1/controllers/gc", model.GarbageBrakeKey{}},
	{"/calico/v1/controllers/config", model.ControllersConfigKey{}},
	{"/calico/dhcp/v1/subnet/s1", model.DHCPSubnetKey{"s1"}},
	{"/calico/nsm/v1/service/vpn", model.NetworkServiceKey{"vpn"}},
	{"/calico/nsm/v1/endpoint/vpn/a/gw-1", model.NetworkServiceEndpointKey{"vpn", "a", "gw-1"}},
}

func TestKeys(t *testing.T) {
	for _, tt := range keys {
		if got := tt.key.Path(); got != tt.path {
			t.Errorf("%#v.Path() = %s, want %s", tt.key, got, tt.path)
		}
		got, err := model.ParseKey(tt.path)
		if err != nil {
			t.Error(err)
		} else if got != tt.key {
			t.Errorf("ParseKey(%s) = %#v, want %#v", tt.path, got, tt.key)
		}
	}
}

// TestOddKeys reads what others wrote; it is written in its canonical form.
func TestOddKeys(t *testing.T) {
	for _, tt := range []struct{ path, canonical string }{
		{"/calico/v1/host/a/endpoint/x%2fy", "/calico/v1/host/a/endpoint/x%2Fy"},
		{"/calico/v1/host/a/endpoint/%65th0", "/calico/v1/host/a/endpoint/eth0"},
		{"/calico/v1/host/a/endpoint/eth 0:1~é", "/calico/v1/host/a/endpoint/eth%200%3A1%7E%C3%A9"},
		{"/calico/v1/config/bgp_node%5Fmesh", "/calico/v1/config/bgp_node_mesh"},
		{"/calico/v1/config/bgp_peer_v4", "/calico/v1/config/bgp_peer_v4"},
		{"/calico/v1/ipam/v6/pool/FD00:0:0:0::-64", "/calico/v1/ipam/v6/pool/fd00::-64"},
		{"/calico/bgp/v1/global/peer_v6/2001:DB8:0::1", "/calico/bgp/v1/global/peer_v6/2001:db8::1"},
	} {
		k, err := model.ParseKey(tt.path)
		if err != nil {
			t.Error(err)
		} else if got := k.Path(); got != tt.canonical {
			t.Errorf("ParseKey(%s) is %s, want %s", tt.path, got, tt.canonical)
		}
	}
}

func TestKeyErrors(t *testing.T) {
	long := strings.Repeat("n", 1025)
	for _, tt := range []struct{ path, want string }{
		{"", "not a key of the data model"},
		{"/", "not a key of the data model"},
		{"calico/v1/Ready", "not a key of the data model"},
		{"/calico", "not a key of the data model"},
		{"/calico/", "not a key of the data model"},
		{"/calico/v1/Ready/", "not a key of the data model"},
		{"/calico//v1/Ready", "not a key of the data model"},
		{"/calico/v1/ready", "not a key of the data model"},
		{"/calico/v1/host/a", "not a key of the data model"},
		{"/calico/v1/host/a/workload/k8s/w/endpoint", "not a key of the data model"},
		{"/calico/v1/host/a/workload/k8s/w/endpoint/e/x", "not a key of the data model"},
		{"/calico/v1/policy/profile/p/other", "not a key of the data model"},
		{"/calico/bgp/v1/host/a/other", "not a key of the data model"},
		{"/calico/ipam/v2/assignment/ipv5/block/10.0.0.0-26", "not a key of the data model"},
		{"/calico/v1/host//endpoint/e", "empty name"},
		{"/calico/v1/config/", "empty name"},
		{"/calico/v1/host/a/endpoint/" + long, "name of 1025 bytes: at most 1024"},
		{"/calico/v1/host/a/endpoint/" + strings.Repeat("%41", 1025), "name of 3075 bytes: at most 1024"},
		{"/calico/v1/host/a/endpoint/" + strings.Repeat("%41", 1000) + strings.Repeat("n", 25), "name of 1025 bytes: at most 1024"},
		{"/calico/v1/host/a/endpoint/%", `name "%": % without two hexadecimal digits`},
		{"/calico/v1/host/a/endpoint/%4", `name "%4": % without two hexadecimal digits`},
		{"/calico/v1/host/a/endpoint/%4g", `name "%4g": % without two hexadecimal digits`},
		{"/calico/v1/host/a/endpoint/%g4", `name "%g4": % without two hexadecimal digits`},
		{"/calico/v1/ipam/v4/pool/10.0.0.0", `"10.0.0.0": want a CIDR with - for /, like 10.0.0.0-16`},
		{"/calico/v1/ipam/v4/pool/10.0.0.0-33", `"10.0.0.0-33": want a CIDR with - for /, like 10.0.0.0-16`},
		{"/calico/v1/ipam/v4/pool/x-16", `"x-16": want a CIDR with - for /, like 10.0.0.0-16`},
		{"/calico/v1/ipam/v6/pool/fd00::-129", `"fd00::-129": want a CIDR with - for /, like fd00:10::-64`},
		{"/calico/v1/ipam/v4/pool/10.0.0.1-16", `"10.0.0.1-16" has host bits set: write 10.0.0.0-16`},
		{"/calico/v1/ipam/v4/pool/fd00::-64", "fd00::: want IPv4"},
		{"/calico/v1/ipam/v6/pool/10.0.0.0-16", "10.0.0.0: want IPv6"},
		{"/calico/v1/ipam/v6/pool/::ffff:10.0.0.0-112", "::ffff:10.0.0.0: write the IPv4 address as 10.0.0.0"},
		{"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-19", "10.0.0.0/19: a block is /20 at the largest"},
		{"/calico/ipam/v2/host/a/ipv6/block/fd00::-64", "fd00::/64: a block is /116 at the largest"},
		{"/calico/bgp/v1/global/peer_v4/x", `"x": want an IP address`},
		{"/calico/bgp/v1/global/peer_v4/2001:db8::1", "2001:db8::1: want IPv4"},
		{"/calico/bgp/v1/global/peer_v6/fe80::1%25eth0", "fe80::1%eth0 is link-local, which the address of a BGP peer can't be"},
		{"/calico/bgp/v1/host/a/peer_v6/fe80::1", "fe80::1 is link-local, which the address of a BGP peer can't be"},
		{"/calico/bgp/v1/global/peer_v4/0.0.0.0", "0.0.0.0 is nobody's address, so it can't be that of a BGP peer"},
		{"/calico/bgp/v1/host/a/peer_v4/224.0.0.5", "224.0.0.5 is nobody's address, so it can't be that of a BGP peer"},
		{"/calico/bgp/v1/host/a/peer_v4/255.255.255.255", "255.255.255.255 is nobody's address, so it can't be that of a BGP peer"},
		{"/calico/bgp/v1/global/peer_v6/::", ":: is nobody's address, so it can't be that of a BGP peer"},
		{"/calico/bgp/v1/global/peer_v6/fd00::1%25eth0", "fd00::1%eth0: an address here has no zone"},
	} {
		k, err := model.ParseKey(tt.path)
		if err == nil {
			t.Errorf("ParseKey(%.80q) = %#v, want an error", tt.path, k)
			continue
		}
		if k != nil {
			t.Errorf("ParseKey(%.80q) gives a key and an error", tt.path)
		}
		if !strings.HasSuffix(err.Error(), ": "+tt.want) {
			t.Errorf("ParseKey(%.80q): %v, want %s", tt.path, err, tt.want)
		}
		if got, want := errors.Is(err, model.ErrUnknownKey), tt.want == model.ErrUnknownKey.Error(); got != want {
			t.Errorf("ParseKey(%.80q): is ErrUnknownKey: %v, want %v", tt.path, got, want)
		}
	}
}

func TestEscapeName(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"", ""},
		{"Az09_.-", "Az09_.-"},
		{"a/b", "a%2Fb"},
		{"%", "%25"},
		{"..", ".."},
		{"\x00\xff", "%00%FF"},
	} {
		got := model.EscapeName(tt.name)
		if got != tt.want {
			t.Errorf("EscapeName(%q) = %q, want %q", tt.name, got, tt.want)
		}
		if tt.name == "" {
			continue
		}
		if back, err := model.UnescapeName(got); err != nil || back != tt.name {
			t.Errorf("UnescapeName(%q) = %q, %v, want %q", got, back, err, tt.name)
		}
	}
	if _, err := model.UnescapeName("a/b"); err == nil {
		t.Error("UnescapeName takes a/b for a name")
	}
}

func TestPrefixes(t *testing.T) {
	for _, tt := range []struct{ prefix, path string }{
		{model.WorkloadEndpointPrefix("a"), model.WorkloadEndpointKey{"a", "o", "w", "e"}.Path()},
		{model.WorkloadEndpointPrefix(""), model.WorkloadEndpointKey{"a", "o", "w", "e"}.Path()},
		{model.WorkloadEndpointPrefix("a/b"), model.WorkloadEndpointKey{"a/b", "o", "w", "e"}.Path()},
		{model.HostPrefix("a"), model.HostEndpointKey{"a", "e"}.Path()},
		{model.HostPrefix(""), model.HostMetadataKey{"a"}.Path()},
		{model.ConfigPrefix(), model.GlobalConfigKey{"n"}.Path()},
		{model.PolicyPrefix(), model.PolicyKey{"default", "p"}.Path()},
		{model.ServicePrefix(), model.ServiceKey{"a/b"}.Path()},
		{model.NetworkSetPrefix(), model.NetworkSetKey{"a/b"}.Path()},
		{model.PoolPrefix(), model.PoolKey{cidr("10.0.0.0/16")}.Path()},
		{model.PoolPrefix(), model.PoolKey{cidr("fd00::/64")}.Path()},
		{model.BlockPrefix(false), model.BlockKey{cidr("10.0.0.0/26")}.Path()},
		{model.BlockPrefix(true), model.BlockKey{cidr("fd00::/122")}.Path()},
		{model.AffinityPrefix("a"), model.AffinityKey{"a", cidr("10.0.0.0/26")}.Path()},
		{model.AffinityPrefix(""), model.AffinityKey{"a", cidr("fd00::/122")}.Path()},
		{model.HandlePrefix(), model.HandleKey{ID: "h"}.Path()},
		{model.BGPPrefix(), model.BGPPeerKey{IP: ip("192.0.2.1")}.Path()},
		{model.FilterPrefix(), model.BGPFilterKey{"f"}.Path()},
		{model.StatusPrefix("a"), model.StatusKey{"a"}.Path()},
		{model.StatusPrefix(""), model.WorkloadStatusKey{"a", "o", "w", "e"}.Path()},
		{model.SubnetPrefix(), model.DHCPSubnetKey{"s"}.Path()},
		{model.NetworkServicePrefix(), model.NetworkServiceKey{"s"}.Path()},
		{model.NetworkServiceEndpointPrefix(), model.NetworkServiceEndpointKey{"s", "h", "n"}.Path()},
	} {
		if !strings.HasPrefix(tt.path, tt.prefix) || !strings.HasSuffix(tt.prefix, "/") {
			t.Errorf("%s is not a range with %s", tt.prefix, tt.path)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, tt := range keys {
		f.Add(tt.path)
	}
	f.Add("/calico/v1/config/bgp_node%5Fmesh")
	f.Add("/calico/v1/host/\xff\x00%/endpoint/a%2fb~")
	f.Fuzz(func(t *testing.T, path string) {
		k, err := model.ParseKey(path)
		if err != nil {
			return
		}
		canonical := k.Path()
		again, err := model.ParseKey(canonical)
		if err != nil || again != k || again.Path() != canonical {
			t.Fatalf("%q is %#v, whose path %q is %#v (%v)", path, k, canonical, again, err)
		}
	})
}

func BenchmarkParseKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := model.ParseKey("/calico/v1/host/node-17/workload/k8s/default.web-0/endpoint/eth0"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCheckHost(t *testing.T) {
	for name, want := range map[string]string{
		"node-1": "", "Node_1.example.org": "", strings.Repeat("x", 253): "",
		"":                       "host name is empty",
		strings.Repeat("x", 254): "host name of 254 characters: at most 253",
		"a\nb":                   `host name "a\nb": want letters, digits, '.', '-' and '_'`,
		"a b":                    `host name "a b": want letters, digits, '.', '-' and '_'`,
		"a/b":                    `host name "a/b": want letters, digits, '.', '-' and '_'`,
		"a\x7f":                  `host name "a\x7f": want letters, digits, '.', '-' and '_'`,
		"bücher":                 `host name "bücher": want letters, digits, '.', '-' and '_'`,
	} {
		if err := model.CheckHost(name); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
