// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/model"
)

// peers returns no rules, and true, if the peers are known and match nothing, such as nodes that don't exist.
func (c *clusterCompiler) peers(r clusterRule, closed string) (ends []model.Rule, ok bool) {
	list := r.field + ".from"
	if r.direction == model.Outbound {
		list = r.field + ".to"
	}
	if len(r.peers) == 0 {
		c.add(list, "no peer, "+closed, "write whom the rule is about")
		return nil, false
	}
	ok = true
	for i := range r.peers {
		field, peer := fmt.Sprintf("%s[%d]", list, i), &r.peers[i]
		var end model.Rule
		known, some := true, true
		switch set := kinds(peer); {
		case len(set) != 1:
			c.add(field, fmt.Sprintf("it says %d of the kinds of peers that are known, %s", len(set), closed), "write one, or upgrade where it is another that a later version has")
			known = false
		case set[0] == "domainNames":
			c.add(field, "domainNames are not supported, "+closed, "write networks")
			known = false
		case set[0] == "networks":
			known = c.networks(&end, field, peer.Networks, closed)
		case set[0] == "nodes":
			some, known = c.nodesOf(&end, field, peer.Nodes, closed)
		default:
			base := []string{anyPod} // a rule that denies also applies before the namespace is known
			if r.passes() {
				base = knownPods(namespacesOf(peer.Namespaces, peer.Pods))
			}
			var terms []string
			terms, known = c.selected(field, peer.Namespaces, peer.Pods, closed)
			pick(&end, r.direction, append(base, terms...))
		}
		if ok = ok && known; some {
			ends = append(ends, end)
		}
	}
	return ends, ok
}

// kinds returns the names of a peer's fields that are set.
func kinds(p *v1alpha2.ClusterNetworkPolicyEgressPeer) []string {
	var set []string
	for _, k := range [...]struct {
		name string
		is   bool
	}{
		{"namespaces", p.Namespaces != nil}, {"pods", p.Pods != nil}, {"nodes", p.Nodes != nil},
		{"networks", len(p.Networks) > 0}, {"domainNames", len(p.DomainNames) > 0},
	} {
		if k.is {
			set = append(set, k.name)
		}
	}
	return set
}

func (c *clusterCompiler) networks(end *model.Rule, field string, networks []v1alpha2.CIDR, closed string) bool {
	for i, s := range networks {
		cidr, err := parseCIDR(string(s))
		if err != nil {
			c.add(fmt.Sprintf("%s.networks[%d]", field, i), err.Error()+", "+closed, "write a block like 10.0.0.0/8 or fd00::/8")
			return false
		}
		within(&end.Match, model.Outbound, cidr)
	}
	return true
}

// nodesOf makes the rule match the addresses of nodes. some is false if there are none.
func (c *clusterCompiler) nodesOf(end *model.Rule, field string, s *metav1.LabelSelector, closed string) (some, known bool) {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		c.add(field+".nodes", fmt.Sprintf("%.200s, %s", err, closed), "correct the selector, or upgrade where its meaning is that of a later version")
		return false, false
	}
	for _, n := range c.nodes {
		if !sel.Matches(labels.Set(n.Labels)) {
			continue
		}
		for _, a := range n.Addrs {
			within(&end.Match, model.Outbound, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return len(end.Match.DstNets) > 0, true
}

func (c *clusterCompiler) protocols(r clusterRule, closed string) (ports []portMatch, ok bool) {
	if len(r.protocols) == 0 {
		return []portMatch{{}}, true
	}
	var all portMatches
	for i := range r.protocols {
		field, p := fmt.Sprintf("%s.protocols[%d]", r.field, i), &r.protocols[i]
		if err := protocolPorts(&all, p); err != nil {
			c.add(field, err.Error()+", "+closed, "correct it, or upgrade where its meaning is that of a later version")
			return nil, false
		}
		if p.DestinationNamedPort != "" && slices.ContainsFunc(r.peers, notPods) {
			c.add(field, "networks, nodes and domain names have no names of ports, "+closed, "write numbers, or a rule for pods alone")
			return nil, false
		}
	}
	return all, true
}

func notPods(p v1alpha2.ClusterNetworkPolicyEgressPeer) bool {
	return p.Namespaces == nil && p.Pods == nil
}

// protocolPorts adds the matches of one entry of protocols.
func protocolPorts(all *portMatches, p *v1alpha2.ClusterNetworkPolicyProtocol) error {
	var protocol model.Protocol
	var port *v1alpha2.Port
	set := 0
	if p.TCP != nil {
		protocol, port, set = model.ProtocolTCP, p.TCP.DestinationPort, set+1
	}
	if p.UDP != nil {
		protocol, port, set = model.ProtocolUDP, p.UDP.DestinationPort, set+1
	}
	if p.SCTP != nil {
		protocol, port, set = model.ProtocolSCTP, p.SCTP.DestinationPort, set+1
	}
	if p.DestinationNamedPort != "" {
		set++
	}
	if set != 1 {
		return fmt.Errorf("it says %d of tcp, udp, sctp and destinationNamedPort: want one", set)
	}
	if protocol == 0 {
		name, err := namedPort(p.DestinationNamedPort)
		if err != nil {
			return err
		}
		for _, protocol := range [...]model.Protocol{model.ProtocolTCP, model.ProtocolUDP, model.ProtocolSCTP} {
			all.add(protocol, &name)
		}
		return nil
	}
	if port == nil || (port.Number != 0) == (port.Range != nil) {
		return fmt.Errorf("%s without one of number and range", protocol)
	}
	first, last := port.Number, port.Number
	if port.Range != nil {
		first, last = port.Range.Start, port.Range.End
	}
	ports, err := portRange(first, last)
	if err == nil {
		all.add(protocol, &ports)
	}
	return err
}
