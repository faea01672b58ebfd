// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"fmt"
	"net/netip"
	"slices"

	netutils "k8s.io/utils/net"

	"github.com/calico-go/calico/pkg/model"
)

// pick makes the rule match peers that satisfy all terms.
func pick(rule *model.Rule, d model.Direction, terms []string) {
	if d == model.Inbound {
		rule.Match.SrcSelector, rule.Match.HasSrcSelector = and(terms...), true
	} else {
		rule.Match.DstSelector, rule.Match.HasDstSelector = and(terms...), true
	}
}

// opposite returns the direction with which pick sets a condition on the policy's own pod.
func opposite(d model.Direction) model.Direction {
	if d == model.Inbound {
		return model.Outbound
	}
	return model.Inbound
}

// within adds nets to those that match the peer.
func within(m *model.Match, d model.Direction, nets ...netip.Prefix) {
	if d == model.Inbound {
		m.SrcNets = append(m.SrcNets, nets...)
	} else {
		m.DstNets = append(m.DstNets, nets...)
	}
}

// parseCIDR parses a block as Kubernetes always has: leading zeros are decimal, and host bits are ignored.
func parseCIDR(s string) (netip.Prefix, error) {
	_, n, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%.64q is not a block of addresses", s)
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if addr.Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%.64q has IPv4 addresses written as IPv6", s)
	}
	return netip.PrefixFrom(addr, bits), nil
}

// portMatch is a condition on the destination port. The zero value is no condition.
type portMatch struct {
	protocol model.Protocol
	ports    []model.Port // empty: all ports of the protocol
}

// portMatches has one entry per protocol.
type portMatches []portMatch

// add adds one more port, or all ports of a protocol if port is nil.
func (m *portMatches) add(protocol model.Protocol, port *model.Port) {
	i := slices.IndexFunc(*m, func(p portMatch) bool { return p.protocol == protocol })
	switch {
	case i < 0 && port == nil:
		*m = append(*m, portMatch{protocol: protocol})
	case i < 0:
		*m = append(*m, portMatch{protocol, []model.Port{*port}})
	case port == nil:
		(*m)[i].ports = nil
	case (*m)[i].ports != nil && !slices.Contains((*m)[i].ports, *port):
		(*m)[i].ports = append((*m)[i].ports, *port)
	}
}

// product returns a rule for each combination of peer and protocol.
func product(ends []model.Rule, ports []portMatch) []model.Rule {
	var rules []model.Rule
	for _, rule := range ends {
		for _, p := range ports {
			rule.Match.Protocol, rule.Match.DstPorts = p.protocol, p.ports
			rules = append(rules, rule)
		}
	}
	return rules
}

// parseProtocol parses the protocols that have ports in Kubernetes.
func parseProtocol(s string) (model.Protocol, error) {
	switch s {
	case "TCP":
		return model.ProtocolTCP, nil
	case "UDP":
		return model.ProtocolUDP, nil
	case "SCTP":
		return model.ProtocolSCTP, nil
	}
	return 0, fmt.Errorf("protocol %.64q is unknown: want TCP, UDP or SCTP", s)
}

// namedPort returns a named port of the destination pod.
func namedPort(name string) (model.Port, error) {
	if p, err := model.ParsePort(name); err == nil && p.Name == name && name != "" {
		return p, nil
	}
	return model.Port{}, fmt.Errorf("%.64q is not the name of a port", name)
}

func portRange(first, last int32) (model.Port, error) {
	switch {
	case first < 1 || first > 65535:
		return model.Port{}, fmt.Errorf("port %d: want 1 to 65535", first)
	case last > 65535:
		return model.Port{}, fmt.Errorf("ports to %d: want at most 65535", last)
	case last < first:
		return model.Port{}, fmt.Errorf("ports %d to %d: the range ends before it begins", first, last)
	}
	return model.Port{Min: uint16(first), Max: uint16(last)}, nil
}
