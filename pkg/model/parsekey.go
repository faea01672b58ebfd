// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrUnknownKey says that a path is not of the data model at all, as opposed
// to one whose place is known but whose name, CIDR or address is not valid.
var ErrUnknownKey = errors.New("not a key of the data model")

// ParseKey reads a path, in its canonical and in every older form. An error
// is ErrUnknownKey or says which part of the path is wrong.
func ParseKey(path string) (Key, error) {
	rest, ok := strings.CutPrefix(path, Root)
	if !ok {
		return nil, fmt.Errorf("key %.256q: %w", path, ErrUnknownKey)
	}
	var names [4]string
	for i := range shapes {
		n, ok := match(shapes[i].pattern, rest, &names)
		if !ok {
			continue
		}
		for j := range n {
			name, err := UnescapeName(names[j])
			if err != nil {
				return nil, fmt.Errorf("key %.256q: %w", path, err)
			}
			names[j] = name
		}
		k, err := shapes[i].build(names)
		if err != nil { // and k is half a key
			return nil, fmt.Errorf("key %.256q: %w", path, err)
		}
		return k, nil
	}
	return nil, fmt.Errorf("key %.256q: %w", path, ErrUnknownKey)
}

// match compares a path with a pattern segment by segment and collects what
// stands at each *.
func match(pattern, path string, names *[4]string) (n int, ok bool) {
	for {
		var want, have string
		var moreWant, moreHave bool
		want, pattern, moreWant = strings.Cut(pattern, "/")
		have, path, moreHave = strings.Cut(path, "/")
		if want == "*" {
			names[n] = have
			n++
		} else if want != have {
			return 0, false
		}
		if moreWant != moreHave {
			return 0, false
		}
		if !moreWant {
			return n, true
		}
	}
}

// shapes are all the places of the data model, below Root. The first that
// matches counts.
var shapes = [...]struct {
	pattern string
	build   func(n [4]string) (Key, error)
}{
	{"v1/Ready", func([4]string) (Key, error) { return ReadyKey{}, nil }},
	{"v1/host/*/workload/*/*/endpoint/*", func(n [4]string) (Key, error) {
		return WorkloadEndpointKey{n[0], n[1], n[2], n[3]}, nil
	}},
	{"v1/host/*/endpoint/*", func(n [4]string) (Key, error) { return HostEndpointKey{n[0], n[1]}, nil }},
	{"v1/host/*/metadata", func(n [4]string) (Key, error) { return HostMetadataKey{n[0]}, nil }},
	{"v1/host/*/bird_ip", func(n [4]string) (Key, error) { return HostBirdIPKey{n[0]}, nil }},
	{"v1/host/*/config/*", func(n [4]string) (Key, error) { return HostConfigKey{n[0], n[1]}, nil }},
	{"v1/host/*/bgp_peer_v4/*", func(n [4]string) (Key, error) { return parsePeerKey(n[0], n[1], false, true) }},
	{"v1/host/*/bgp_peer_v6/*", func(n [4]string) (Key, error) { return parsePeerKey(n[0], n[1], true, true) }},

	{"ipam/v2/assignment/ipv4/block/*", func(n [4]string) (Key, error) { return parseBlockKey(n[0], false) }},
	{"ipam/v2/assignment/ipv6/block/*", func(n [4]string) (Key, error) { return parseBlockKey(n[0], true) }},
	{"ipam/v2/handle/*", func(n [4]string) (Key, error) { return HandleKey{ID: n[0]}, nil }},
	{"ipam/v2/assignment/handle/*", func(n [4]string) (Key, error) { return HandleKey{ID: n[0], Legacy: true}, nil }},
	{"ipam/v2/host/*/ipv4/block/*", func(n [4]string) (Key, error) { return parseAffinityKey(n[0], n[1], false) }},
	{"ipam/v2/host/*/ipv6/block/*", func(n [4]string) (Key, error) { return parseAffinityKey(n[0], n[1], true) }},
	{"ipam/v2/config", func([4]string) (Key, error) { return IPAMConfigKey{}, nil }},
	{"v1/ipam/v4/pool/*", func(n [4]string) (Key, error) { return parsePoolKey(n[0], false) }},
	{"v1/ipam/v6/pool/*", func(n [4]string) (Key, error) { return parsePoolKey(n[0], true) }},

	{"v1/policy/profile/*/rules", func(n [4]string) (Key, error) { return ProfileRulesKey{n[0]}, nil }},
	{"v1/policy/profile/*/tags", func(n [4]string) (Key, error) { return ProfileTagsKey{n[0]}, nil }},
	{"v1/policy/profile/*/labels", func(n [4]string) (Key, error) { return ProfileLabelsKey{n[0]}, nil }},
	{"v1/policy/tier/*/policy/*", func(n [4]string) (Key, error) { return PolicyKey{n[0], n[1]}, nil }},
	{"v1/policy/tier/*/metadata", func(n [4]string) (Key, error) { return TierKey{n[0]}, nil }},

	{"v1/config/bgp_peer_v4/*", func(n [4]string) (Key, error) { return parsePeerKey("", n[0], false, true) }},
	{"v1/config/bgp_peer_v6/*", func(n [4]string) (Key, error) { return parsePeerKey("", n[0], true, true) }},
	{"v1/config/*", func(n [4]string) (Key, error) {
		if n[0] == "bgp_node_mesh" {
			return BGPMeshKey{Legacy: true}, nil
		}
		return GlobalConfigKey{n[0]}, nil
	}},

	{"bgp/v1/global/as_num", func([4]string) (Key, error) { return BGPGlobalASKey{}, nil }},
	{"bgp/v1/global/node_mesh", func([4]string) (Key, error) { return BGPMeshKey{}, nil }},
	{"bgp/v1/global/peer_v4/*", func(n [4]string) (Key, error) { return parsePeerKey("", n[0], false, false) }},
	{"bgp/v1/global/peer_v6/*", func(n [4]string) (Key, error) { return parsePeerKey("", n[0], true, false) }},
	{"bgp/v1/host/*/peer_v4/*", func(n [4]string) (Key, error) { return parsePeerKey(n[0], n[1], false, false) }},
	{"bgp/v1/host/*/peer_v6/*", func(n [4]string) (Key, error) { return parsePeerKey(n[0], n[1], true, false) }},
	{"bgp/v1/host/*/ip_addr_v4", func(n [4]string) (Key, error) { return BGPHostKey{n[0], BGPHostIPv4}, nil }},
	{"bgp/v1/host/*/ip_addr_v6", func(n [4]string) (Key, error) { return BGPHostKey{n[0], BGPHostIPv6}, nil }},
	{"bgp/v1/host/*/as_num", func(n [4]string) (Key, error) { return BGPHostKey{n[0], BGPHostAS}, nil }},
	{"bgp/v1/host/*/network_v4", func(n [4]string) (Key, error) { return BGPHostKey{n[0], BGPHostNetworkV4}, nil }},
	{"bgp/v1/host/*/route_reflector_cluster_id", func(n [4]string) (Key, error) {
		return BGPHostKey{n[0], BGPHostReflector}, nil
	}},

	{"felix/v1/host/*/status", func(n [4]string) (Key, error) { return StatusKey{n[0]}, nil }},
	{"felix/v1/host/*/last_reported_status", func(n [4]string) (Key, error) { return LastStatusKey{n[0]}, nil }},
	{"felix/v1/host/*/workload/*/*/endpoint/*", func(n [4]string) (Key, error) {
		return WorkloadStatusKey{n[0], n[1], n[2], n[3]}, nil
	}},
	{"felix/v1/host/*/endpoint/*", func(n [4]string) (Key, error) { return HostEndpointStatusKey{n[0], n[1]}, nil }},
	{"dhcp/v1/subnet/*", func(n [4]string) (Key, error) { return DHCPSubnetKey{n[0]}, nil }},
}

func parsePoolKey(s string, v6 bool) (Key, error) {
	p, err := parseCIDRName(s, v6)
	return PoolKey{p}, err
}

func parseBlockKey(s string, v6 bool) (Key, error) {
	p, err := parseCIDRName(s, v6)
	if err == nil {
		err = checkBlockCIDR(p)
	}
	return BlockKey{p}, err
}

func parseAffinityKey(host, s string, v6 bool) (Key, error) {
	p, err := parseCIDRName(s, v6)
	if err == nil {
		err = checkBlockCIDR(p)
	}
	return AffinityKey{host, p}, err
}

func parsePeerKey(host, s string, v6, legacy bool) (Key, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() && a.IsLinkLocalUnicast() {
		return nil, fmt.Errorf("%s is link-local, which the address of a BGP peer can't be", a)
	}
	a, err := parseIPName(s, v6)
	if err == nil && (a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255})) {
		return nil, fmt.Errorf("%s is nobody's address, so it can't be that of a BGP peer", a)
	}
	return BGPPeerKey{Host: host, IP: a, Legacy: legacy}, err
}
