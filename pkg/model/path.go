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

// HostPrefix is where a host's endpoints, settings and metadata are; "" means those of every host.
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

// ObjectPrefix is where operators' objects are: hosts, endpoints, settings, policies and pools.
func ObjectPrefix() string { return v1Root }

// PoolPrefix is where the pools of both families are.
func PoolPrefix() string { return v1Root + "ipam/" }

// ConfigPrefix is where the settings of all hosts are, and BGP's in their older place.
func ConfigPrefix() string { return v1Root + "config/" }

// PolicyPrefix is where profiles, tiers and policies are.
func PolicyPrefix() string { return v1Root + "policy/" }

// BGPPrefix is where BGP's settings and peers are.
func BGPPrefix() string { return bgpRoot }

// BGPHostPrefix is where BGP's settings of hosts are, and the addresses of these.
func BGPHostPrefix() string { return bgpRoot + "host/" }

// StatusPrefix is where agents report; "" means every host.
func StatusPrefix(host string) string {
	if host == "" {
		return felixRoot + "host/"
	}
	return felixRoot + "host/" + EscapeName(host) + "/"
}

// BlockPrefix is where the allocation blocks of one family are.
func BlockPrefix(v6 bool) string { return ipamRoot + "assignment/" + ipFamily(v6) + "/block/" }

// AffinityPrefix is where the affinities of a host are, both families; "" means every host.
func AffinityPrefix(host string) string {
	if host == "" {
		return ipamRoot + "host/"
	}
	return ipamRoot + "host/" + EscapeName(host) + "/"
}

// HandlePrefix is where handles are.
func HandlePrefix() string { return ipamRoot + "handle/" }

// NetworkServicePrefix is where network services are.
func NetworkServicePrefix() string { return Root + "nsm/v1/service/" }

// NetworkServiceEndpointPrefix is where their endpoints are.
func NetworkServiceEndpointPrefix() string { return Root + "nsm/v1/endpoint/" }

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

// join escapes names into the segments between literals: each of format's * stands for the next name.
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
