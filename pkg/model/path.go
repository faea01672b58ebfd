// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"strings"
)

// Root is where the whole data model lies.
const Root = "/calico/"

const (
	v1Root   = Root + "v1/"
	ipamRoot = Root + "ipam/v2/"
	bgpRoot  = Root + "bgp/v1/"
	// felixRoot holds what agents report.
	felixRoot = Root + "felix/v1/"
)

// DefaultBlockSize is the prefix length of a pool's blocks where it states none.
func DefaultBlockSize(v6 bool) int {
	if v6 {
		return 122
	}
	return 26
}

// HostPrefix is where a host's endpoints, settings and metadata are; "" means
// those of every host.
func HostPrefix(host string) string {
	if host == "" {
		return v1Root + "host/"
	}
	return v1Root + "host/" + EscapeName(host) + "/"
}

// WorkloadEndpointPrefix is where a host's workload endpoints are. With "" it
// is HostPrefix of every host, which holds other objects too.
func WorkloadEndpointPrefix(host string) string {
	if host == "" {
		return HostPrefix("")
	}
	return HostPrefix(host) + "workload/"
}

// PoolPrefix is where the pools of both families are.
func PoolPrefix() string { return v1Root + "ipam/" }

// ConfigPrefix is where the settings of all hosts are, and BGP's in their older place.
func ConfigPrefix() string { return v1Root + "config/" }

// PolicyPrefix is where profiles, tiers and policies are.
func PolicyPrefix() string { return v1Root + "policy/" }

// BGPPrefix is where BGP's settings and peers are.
func BGPPrefix() string { return bgpRoot }

// StatusPrefix is where agents report; "" means every host.
func StatusPrefix(host string) string {
	if host == "" {
		return felixRoot + "host/"
	}
	return felixRoot + "host/" + EscapeName(host) + "/"
}

// BlockPrefix is where the allocation blocks of one family are.
func BlockPrefix(v6 bool) string { return ipamRoot + "assignment/" + ipFamily(v6) + "/block/" }

// AffinityPrefix is where the affinities of a host are, both families; ""
// means every host.
func AffinityPrefix(host string) string {
	if host == "" {
		return ipamRoot + "host/"
	}
	return ipamRoot + "host/" + EscapeName(host) + "/"
}

// HandlePrefix is where handles are.
func HandlePrefix() string { return ipamRoot + "handle/" }

// SubnetPrefix is where DHCP subnets are.
func SubnetPrefix() string { return Root + "dhcp/v1/subnet/" }

func ipFamily(v6 bool) string {
	if v6 {
		return "ipv6"
	}
	return "ipv4"
}

func vFamily(v6 bool) string {
	if v6 {
		return "v6"
	}
	return "v4"
}

func isV6(p netip.Prefix) bool { return p.Addr().Is6() }

// join escapes names into the segments between literals: each of format's *
// stands for the next name.
func join(format string, names ...string) string {
	n := len(format)
	for _, name := range names {
		n += len(name)
	}
	var b strings.Builder
	b.Grow(n)
	for _, name := range names {
		literal, rest, _ := strings.Cut(format, "*")
		b.WriteString(literal)
		b.WriteString(EscapeName(name))
		format = rest
	}
	b.WriteString(format)
	return b.String()
}

// Path is /calico/v1/Ready.
func (ReadyKey) Path() string { return v1Root + "Ready" }

// Path is /calico/v1/config/<name>. The names of BGP's older places belong to
// BGPMeshKey and BGPPeerKey.
func (k GlobalConfigKey) Path() string { return join(v1Root+"config/*", k.Name) }

// Path is /calico/v1/host/<host>/config/<name>.
func (k HostConfigKey) Path() string { return join(v1Root+"host/*/config/*", k.Host, k.Name) }

// Path is /calico/v1/host/<host>/metadata.
func (k HostMetadataKey) Path() string { return join(v1Root+"host/*/metadata", k.Host) }

// Path is /calico/v1/host/<host>/bird_ip.
func (k HostBirdIPKey) Path() string { return join(v1Root+"host/*/bird_ip", k.Host) }

// Path is /calico/v1/host/<host>/workload/<orchestrator>/<workload>/endpoint/<endpoint>.
func (k WorkloadEndpointKey) Path() string {
	return join(v1Root+"host/*/workload/*/*/endpoint/*", k.Host, k.Orchestrator, k.Workload, k.Endpoint)
}

// Path is /calico/v1/host/<host>/endpoint/<endpoint>.
func (k HostEndpointKey) Path() string {
	return join(v1Root+"host/*/endpoint/*", k.Host, k.Endpoint)
}

// Path is /calico/v1/policy/profile/<profile>/rules.
func (k ProfileRulesKey) Path() string { return join(v1Root+"policy/profile/*/rules", k.Profile) }

// Path is /calico/v1/policy/profile/<profile>/tags.
func (k ProfileTagsKey) Path() string { return join(v1Root+"policy/profile/*/tags", k.Profile) }

// Path is /calico/v1/policy/profile/<profile>/labels.
func (k ProfileLabelsKey) Path() string { return join(v1Root+"policy/profile/*/labels", k.Profile) }

// Path is /calico/v1/policy/tier/<tier>/metadata.
func (k TierKey) Path() string { return join(v1Root+"policy/tier/*/metadata", k.Tier) }

// Path is /calico/v1/policy/tier/<tier>/policy/<policy>.
func (k PolicyKey) Path() string { return join(v1Root+"policy/tier/*/policy/*", k.Tier, k.Policy) }

// Path is /calico/v1/ipam/{v4,v6}/pool/<cidr>.
func (k PoolKey) Path() string {
	return v1Root + "ipam/" + vFamily(isV6(k.CIDR)) + "/pool/" + cidrName(k.CIDR)
}

// Path is /calico/ipam/v2/assignment/{ipv4,ipv6}/block/<cidr>.
func (k BlockKey) Path() string { return BlockPrefix(isV6(k.CIDR)) + cidrName(k.CIDR) }

// Path is /calico/ipam/v2/handle/<id>, or the older place.
func (k HandleKey) Path() string {
	if k.Legacy {
		return join(ipamRoot+"assignment/handle/*", k.ID)
	}
	return join(ipamRoot+"handle/*", k.ID)
}

// Path is /calico/ipam/v2/host/<host>/{ipv4,ipv6}/block/<cidr>.
func (k AffinityKey) Path() string {
	return join(ipamRoot+"host/*/", k.Host) + ipFamily(isV6(k.CIDR)) + "/block/" + cidrName(k.CIDR)
}

// Path is /calico/ipam/v2/config.
func (IPAMConfigKey) Path() string { return ipamRoot + "config" }

// Path is /calico/bgp/v1/global/as_num.
func (BGPGlobalASKey) Path() string { return bgpRoot + "global/as_num" }

// Path is /calico/bgp/v1/global/node_mesh, or the older place.
func (k BGPMeshKey) Path() string {
	if k.Legacy {
		return v1Root + "config/bgp_node_mesh"
	}
	return bgpRoot + "global/node_mesh"
}

// Path is /calico/bgp/v1/{global,host/<host>}/peer_{v4,v6}/<ip>, or the older place.
func (k BGPPeerKey) Path() string {
	var dir string
	switch {
	case k.Legacy && k.Host == "":
		dir = v1Root + "config/bgp_peer_"
	case k.Legacy:
		dir = join(v1Root+"host/*/bgp_peer_", k.Host)
	case k.Host == "":
		dir = bgpRoot + "global/peer_"
	default:
		dir = join(bgpRoot+"host/*/peer_", k.Host)
	}
	return dir + vFamily(k.IP.Is6()) + "/" + k.IP.String()
}

// Path is /calico/bgp/v1/host/<host>/<field>.
func (k BGPHostKey) Path() string { return join(bgpRoot+"host/*/*", k.Host, string(k.Field)) }

// Path is /calico/felix/v1/host/<host>/status.
func (k StatusKey) Path() string { return join(felixRoot+"host/*/status", k.Host) }

// Path is /calico/felix/v1/host/<host>/last_reported_status.
func (k LastStatusKey) Path() string { return join(felixRoot+"host/*/last_reported_status", k.Host) }

// Path is /calico/felix/v1/host/<host>/workload/<orchestrator>/<workload>/endpoint/<endpoint>.
func (k WorkloadStatusKey) Path() string {
	return join(felixRoot+"host/*/workload/*/*/endpoint/*", k.Host, k.Orchestrator, k.Workload, k.Endpoint)
}

// Path is /calico/felix/v1/host/<host>/endpoint/<endpoint>.
func (k HostEndpointStatusKey) Path() string {
	return join(felixRoot+"host/*/endpoint/*", k.Host, k.Endpoint)
}

// Path is /calico/dhcp/v1/subnet/<id>.
func (k DHCPSubnetKey) Path() string { return join(SubnetPrefix()+"*", k.ID) }
