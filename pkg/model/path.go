// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"strings"
)

// Root is the prefix of the whole data model.
const Root = "/calico/"

const (
	v1Root   = Root + "v1/"
	ipamRoot = Root + "ipam/v2/"
	bgpRoot  = Root + "bgp/v1/"
	// felixRoot has the agents' reports.
	felixRoot = Root + "felix/v1/"
)

// DefaultBlockSize returns the prefix length of a pool's blocks if the pool doesn't state it.
func DefaultBlockSize(v6 bool) int {
	if v6 {
		return 122
	}
	return 26
}

// HostPrefix returns the prefix of a host's endpoints, settings and metadata; "" means those of every host.
func HostPrefix(host string) string {
	if host == "" {
		return v1Root + "host/"
	}
	return v1Root + "host/" + EscapeName(host) + "/"
}

// WorkloadEndpointPrefix returns the prefix of a host's workload endpoints. For "" it is HostPrefix of every host,
// which has other objects too.
func WorkloadEndpointPrefix(host string) string {
	if host == "" {
		return HostPrefix("")
	}
	return HostPrefix(host) + "workload/"
}

// ObjectPrefix returns the prefix of operators' objects: hosts, endpoints, settings, policies and pools.
func ObjectPrefix() string { return v1Root }

// PoolPrefix returns the prefix of the pools of both families.
func PoolPrefix() string { return v1Root + "ipam/" }

// ConfigPrefix returns the prefix of the settings of all hosts, and of BGP's in their older place.
func ConfigPrefix() string { return v1Root + "config/" }

// PolicyPrefix returns the prefix of profiles, tiers and policies.
func PolicyPrefix() string { return v1Root + "policy/" }

// MetaPrefix returns the prefix of what resources of a kind have besides their specs, where their values have no place for it.
func MetaPrefix(kind string) string { return v1Root + "meta/" + EscapeName(kind) + "/" }

// ServicePrefix returns the prefix of services.
func ServicePrefix() string { return v1Root + "service/" }

// NetworkSetPrefix returns the prefix of network sets.
func NetworkSetPrefix() string { return v1Root + "netset/" }

// BGPPrefix returns the prefix of BGP's settings and peers.
func BGPPrefix() string { return bgpRoot }

// FilterPrefix returns the prefix of BGP's filters.
func FilterPrefix() string { return bgpRoot + "filter/" }

// BGPHostPrefix returns the prefix of hosts' BGP settings, which include their addresses.
func BGPHostPrefix() string { return bgpRoot + "host/" }

// StatusPrefix returns the prefix of a host's agent's reports; "" means every host.
func StatusPrefix(host string) string {
	if host == "" {
		return felixRoot + "host/"
	}
	return felixRoot + "host/" + EscapeName(host) + "/"
}

// BlockPrefix returns the prefix of the allocation blocks of one family.
func BlockPrefix(v6 bool) string { return ipamRoot + "assignment/" + ipFamily(v6) + "/block/" }

// AffinityPrefix returns the prefix of a host's affinities, both families; "" means every host.
func AffinityPrefix(host string) string {
	if host == "" {
		return ipamRoot + "host/"
	}
	return ipamRoot + "host/" + EscapeName(host) + "/"
}

// HandlePrefix returns the prefix of handles.
func HandlePrefix() string { return ipamRoot + "handle/" }

// ReservationPrefix returns the prefix of reservations.
func ReservationPrefix() string { return ipamRoot + "reservation/" }

// NetworkServicePrefix returns the prefix of network services.
func NetworkServicePrefix() string { return Root + "nsm/v1/service/" }

// NetworkServiceEndpointPrefix returns the prefix of the endpoints of network services.
func NetworkServiceEndpointPrefix() string { return Root + "nsm/v1/endpoint/" }

// SubnetPrefix returns the prefix of DHCP subnets.
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

// join inserts escaped names into a path: each * of format stands for the next name.
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
