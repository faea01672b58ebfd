// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// ProtectionTier has the policies that keep ports of the nodes for nodes. It is asked before all others, and what its policies
// don't deny passes on.
const ProtectionTier = "calico-host-protection"

// DefaultAllow is the profile of nodes' host endpoints: what no policy decides passes.
const DefaultAllow = "projectcalico-default-allow"

// What nodes' host endpoints are picked by. No pod can have such a label.
const createdBy, creator, anyNode = "projectcalico.org/created-by", "calico-controllers", createdBy + ` == "` + creator + `"`

// NodeEndpointKey is where the host endpoint of a node is stored.
func NodeEndpointKey(node string) model.HostEndpointKey {
	return model.HostEndpointKey{Host: node, Endpoint: node + "-auto-hep"}
}

// NodeEndpoint is the host endpoint of a node: the interface that has one of its addresses. A node without an address has none.
func NodeEndpoint(n Node) (e model.HostEndpoint, ok bool) {
	e = model.HostEndpoint{ProfileIDs: []string{DefaultAllow}, Labels: map[string]string{createdBy: creator}}
	for _, a := range slices.SortedFunc(slices.Values(n.Addrs), netip.Addr.Compare) {
		if a.Is4() {
			e.ExpectedIPv4Addrs = append(e.ExpectedIPv4Addrs, a)
		} else {
			e.ExpectedIPv6Addrs = append(e.ExpectedIPv6Addrs, a)
		}
	}
	return e, len(n.Addrs) > 0
}

// IsNodeEndpoint reports whether a host endpoint is one that NodeEndpoint made.
func IsNodeEndpoint(e model.HostEndpoint) bool { return e.Labels[createdBy] == creator }

// Protection is what keeps TCP ports of the nodes for nodes: nobody else from outside gets in, and no pod gets out to them,
// whichever node it is on. Both are needed: what a pod sends to its own node passes no host endpoint, and to another node it comes
// with the address of its own. Pods are kept from the addresses that nodes have in the API and from those of their tunnels.
func Protection(ports []model.Port, tunnels []netip.Addr) []model.Put {
	order := 100.0
	policy := func(name string, p model.Policy) model.Put {
		return model.Put{Key: model.PolicyKey{Tier: ProtectionTier, Policy: name}, Value: p}
	}
	fromOthers := model.Rule{Action: model.ActionDeny, Match: model.Match{Protocol: model.ProtocolTCP, DstPorts: ports}}
	fromOthers.Not = model.Match{SrcSelector: anyNode, HasSrcSelector: true}
	fromPods := model.Rule{Action: model.ActionDeny, Match: model.Match{Protocol: model.ProtocolTCP, DstPorts: ports, DstSelector: anyNode, HasDstSelector: true}}
	outbound := []model.Rule{fromPods}
	if len(tunnels) > 0 { // an empty list would match every destination
		toTunnels := model.Rule{Action: model.ActionDeny, Match: model.Match{Protocol: model.ProtocolTCP, DstPorts: ports}}
		for _, a := range tunnels {
			toTunnels.Match.DstNets = append(toTunnels.Match.DstNets, netip.PrefixFrom(a, a.BitLen()))
		}
		outbound = append(outbound, toTunnels)
	}
	return []model.Put{
		{Key: model.TierKey{Tier: ProtectionTier}, Value: model.Tier{Order: &order, DefaultAction: model.TierPass}},
		policy("nodes", model.Policy{Selector: anyNode, Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{fromOthers}}),
		policy("pods", model.Policy{Selector: anyPod, Types: []model.Direction{model.Outbound}, Outbound: outbound}),
	}
}
