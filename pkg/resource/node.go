// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// NodeBGP configures BGP of a node.
type NodeBGP struct {
	ASNumber                *ASNumber         `json:"asNumber,omitempty" doc:"Its AS number, if not that of the BGPConfiguration."`
	IPv4Address             *InterfaceAddress `json:"ipv4Address,omitempty" doc:"Its address with the length of its network, by which CrossSubnet decides."`
	IPv6Address             *BareAddress      `json:"ipv6Address,omitempty" doc:"Its IPv6 address. The length of its network is not kept."`
	RouteReflectorClusterID *Address          `json:"routeReflectorClusterID,omitempty" doc:"Makes it a route reflector of this cluster (RFC 4456)."`
	IPv4IPIPTunnelAddr      *Address          `json:"ipv4IPIPTunnelAddr,omitempty" doc:"Address of its IPIP tunnel. Read-only."`
}

// Node is the spec of a host.
type Node struct {
	BGP                 *NodeBGP `json:"bgp,omitempty" doc:"What other nodes need to know of it."`
	IPv4VXLANTunnelAddr *Address `json:"ipv4VXLANTunnelAddr,omitempty" doc:"Address of its VXLAN tunnel. Read-only."`
	IPv6VXLANTunnelAddr *Address `json:"ipv6VXLANTunnelAddr,omitempty" doc:"The same for IPv6."`

	Addresses            []string `json:"addresses,omitempty" input:"ignored" doc:"Without effect: those that others need are in bgp."`
	OrchRefs             []string `json:"orchRefs,omitempty" input:"ignored" doc:"Without effect: the controllers say which Node of Kubernetes it is."`
	Interfaces           []string `json:"interfaces,omitempty" input:"ignored" doc:"Without effect: the agent knows them."`
	VXLANTunnelMACAddr   string   `json:"vxlanTunnelMACAddr,omitempty" input:"ignored" doc:"Without effect: it follows from the node's name."`
	VXLANTunnelMACAddrV6 string   `json:"vxlanTunnelMACAddrV6,omitempty" input:"ignored" doc:"Without effect, likewise."`
	Wireguard            string   `json:"wireguard,omitempty" only:"{}" refused:"WireGuard is not supported"`
}

var nodeKind = newKind(readNode, writeNode, Kind{
	Name: "Node", Plural: "Nodes", Plain: true, Labelled: true,
	ranges: prefix(model.HostPrefix(""), model.BGPPrefix()), of: hostOf, shared: model.BGPGlobalASKey{},
	judged:    prefix(model.StatusPrefix(""), model.AffinityPrefix(""), model.NetworkServiceEndpointPrefix()),
	mayDelete: nodeInUse, vacant: placesOfNode, rest: restOfNode,
	Columns: []Column{
		{"ASN", true, func(r Resource) string { return r.as }},
		cell("IPV4", true, func(n *Node) string { return text(orZero(n.BGP).IPv4Address) }),
		cell("IPV6", true, func(n *Node) string { return text(orZero(n.BGP).IPv6Address) }),
	},
	narrow: func(r Resource) []model.Range {
		return append(keyRanges(model.BGPGlobalASKey{}), prefix(model.HostPrefix(r.Metadata.Name), bgpHostPrefix(r.Metadata.Name))...)
	},
})

func bgpHostPrefix(host string) string { return model.BGPHostPrefix() + model.EscapeName(host) + "/" }

func hostOf(e model.Entry) string {
	switch k := e.Key.(type) {
	case model.HostMetadataKey:
		return k.Host
	case model.BGPHostKey:
		return k.Host
	case model.HostConfigKey:
		if strings.HasSuffix(k.Name, "TunnelAddr") {
			return k.Host
		}
	}
	return ""
}

func readNode(name string, s *Stored) *Node {
	spec, bgp := &Node{}, &NodeBGP{}
	s.Metadata.Name = name
	there := false // there is metadata
	var network netip.Prefix
	for _, e := range s.Entries {
		text, _ := parsed[model.Text](e)
		addr, _ := netip.ParseAddr(string(text)) // invalid if empty or malformed
		switch key := e.Key.(type) {
		case model.HostMetadataKey:
			m, _ := parsed[model.HostMetadata](e)
			s.Metadata.Labels, there = m.Labels, true
		case model.BGPHostKey:
			switch key.Field {
			case model.BGPHostAS:
				if n, err := model.ParseASNumber(string(text)); err == nil {
					bgp.ASNumber = &ASNumber{n}
				}
			case model.BGPHostIPv4:
				if addr.IsValid() {
					bgp.IPv4Address = &InterfaceAddress{netip.PrefixFrom(addr, 32)}
				}
			case model.BGPHostIPv6:
				if addr.IsValid() {
					bgp.IPv6Address = &BareAddress{addr}
				}
			case model.BGPHostReflector:
				bgp.RouteReflectorClusterID = optionalAddress(addr)
			case model.BGPHostNetworkV4:
				network, _ = netip.ParsePrefix(string(text))
			}
		case model.HostConfigKey:
			switch key.Name {
			case "IpInIpTunnelAddr":
				bgp.IPv4IPIPTunnelAddr = optionalAddress(addr)
			case "IPv4VXLANTunnelAddr":
				spec.IPv4VXLANTunnelAddr = optionalAddress(addr)
			case "IPv6VXLANTunnelAddr":
				spec.IPv6VXLANTunnelAddr = optionalAddress(addr)
			}
		}
	}
	if !there {
		return nil
	}
	if bgp.IPv4Address != nil && network.IsValid() && network.Contains(bgp.IPv4Address.Addr()) {
		bgp.IPv4Address.Prefix = netip.PrefixFrom(bgp.IPv4Address.Addr(), network.Bits())
	}
	if *bgp != (NodeBGP{}) {
		spec.BGP = bgp
	}
	s.as = text(bgp.ASNumber)
	if n, _ := parsed[model.ASNumber](s.shared); s.as == "" && n != 0 {
		s.as = n.String()
	}
	s.as = cmp.Or(s.as, "64512") // if none is set
	return spec
}

func writeNode(r writing[Node]) (keys, error) {
	spec, was, host := r.spec, r.was, r.Metadata.Name
	if err := model.CheckHost(host); err != nil {
		return keys{}, r.at("metadata.name", "%w", err)
	}
	var meta model.HostMetadata
	for _, e := range r.entries {
		if e.Key == (model.HostMetadataKey{Host: host}) {
			meta, _ = parsed[model.HostMetadata](e)
		}
	}
	bgp, wasBGP := orZero(spec.BGP), orZero(was.BGP)
	changed := func(now, was *Address) bool { return now != nil && !same(now, was) }
	if !r.alone && (changed(bgp.IPv4IPIPTunnelAddr, wasBGP.IPv4IPIPTunnelAddr) || changed(spec.IPv4VXLANTunnelAddr, was.IPv4VXLANTunnelAddr) || changed(spec.IPv6VXLANTunnelAddr, was.IPv6VXLANTunnelAddr)) {
		return keys{}, r.at("spec", "the addresses of tunnels are the agent's to choose: leave them as they are")
	}
	meta.Labels = r.Metadata.Labels
	var k keys
	k.put(model.HostMetadataKey{Host: host}, meta)
	set := func(field model.BGPHostField, before, now string) {
		k.set(model.BGPHostKey{Host: host, Field: field}, before, now)
	}
	set(model.BGPHostAS, text(wasBGP.ASNumber), text(bgp.ASNumber))
	set(model.BGPHostReflector, text(wasBGP.RouteReflectorClusterID), text(bgp.RouteReflectorClusterID))
	set(model.BGPHostIPv6, text(wasBGP.IPv6Address), text(bgp.IPv6Address))
	if text(bgp.IPv4Address) != text(wasBGP.IPv4Address) {
		addr, network := "", ""
		if a := bgp.IPv4Address; a != nil {
			addr, network = a.Addr().String(), a.Masked().String()
		}
		set(model.BGPHostIPv4, "\x00", addr)
		set(model.BGPHostNetworkV4, "\x00", network)
	}
	return k, nil
}

func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func text[T fmt.Stringer](v *T) string {
	if v == nil {
		return ""
	}
	return (*v).String()
}

// nodeInUse returns an error if a node is in use.
func nodeInUse(s Stored, entries []model.Entry) error {
	endpoints, blocks := 0, 0
	for _, e := range entries {
		switch key := e.Key.(type) {
		case model.WorkloadEndpointKey:
			if key.Host == s.Metadata.Name {
				endpoints++
			}
		case model.AffinityKey:
			if key.Host == s.Metadata.Name {
				blocks++
			}
		case model.StatusKey:
			if key.Host == s.Metadata.Name {
				return errors.New("its agent lives: stop it first")
			}
		}
	}
	if endpoints > 0 || blocks > 0 {
		return fmt.Errorf("it has %s and %s of addresses: move or delete its workloads first, or, if it is gone for good, take them with calicoctl delete node --force",
			Count(endpoints, "workload"), Count(blocks, "block"))
	}
	return nil
}

// placesOfNode returns the prefixes of a host's keys.
func placesOfNode(host string) []string {
	return []string{model.HostPrefix(host), model.StatusPrefix(host), model.AffinityPrefix(host), bgpHostPrefix(host)}
}

// restOfNode returns everything in etcd about a host that its Node doesn't show.
func restOfNode(s Stored, entries []model.Entry) []model.Entry {
	var rest []model.Entry
	for _, e := range entries {
		isBelow := func(prefix string) bool { return strings.HasPrefix(e.Path, prefix) }
		service, _ := e.Key.(model.NetworkServiceEndpointKey)
		if service.Host == s.Metadata.Name || e.Key != nil && hostOf(e) == "" && slices.ContainsFunc(placesOfNode(s.Metadata.Name), isBelow) {
			rest = append(rest, e)
		}
	}
	return rest
}
