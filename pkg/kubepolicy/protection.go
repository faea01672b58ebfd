// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// ProtectionTier has the policies that reserve ports of the nodes for nodes. It is evaluated before all others, and
// passes on what its policies don't deny.
const ProtectionTier = "calico-host-protection"

// DefaultAllow is the profile of nodes' host endpoints: packets that no policy decides about are allowed.
const DefaultAllow = "projectcalico-default-allow"

// The label that selects nodes' host endpoints. No pod can have it.
const createdBy, creator, anyNode = "projectcalico.org/created-by", "calico-controllers", createdBy + ` == "` + creator + `"`

// NodeEndpointKey returns the key under which the host endpoint of a node is stored.
func NodeEndpointKey(node string) model.HostEndpointKey {
	return model.HostEndpointKey{Host: node, Endpoint: node + "-auto-hep"}
}

// NodeEndpoint returns the host endpoint of a node: the interface with one of its addresses. A node without an address
// has none.
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

// IsNodeEndpoint reports whether a host endpoint was made by NodeEndpoint.
func IsNodeEndpoint(e model.HostEndpoint) bool { return e.Labels[createdBy] == creator }

// Protection returns policies that reserve TCP ports of the nodes for nodes: they block all others from outside, and
// all pods on any node. Both are needed: packets of a pod to its own node pass no host endpoint, and those to another
// node arrive with the address of the pod's node. Pods are blocked from the addresses that nodes have in the API and
// from those of their tunnels.
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
