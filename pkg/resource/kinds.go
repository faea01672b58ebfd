// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

func cell[T any](head string, wide bool, of func(*T) string) Column {
	return Column{head, wide, func(r Resource) string {
		if spec, ok := r.Spec.(*T); ok && spec != nil {
			return of(spec)
		}
		return ""
	}}
}

func order(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

func joined[T fmt.Stringer](list []T) string {
	return strings.Join(converted(list, T.String), ",")
}

func prefix(p ...string) []model.Range { return converted(p, model.PrefixRange) }

var policyColumns = []Column{
	cell("TIER", false, func(p *Policy) string { return p.Tier }),
	cell("ORDER", true, func(p *Policy) string { return order(p.Order) }),
	cell("SELECTOR", true, func(p *Policy) string { return p.Selector }),
}

// kinds are all that the operator can name.
var kinds = []Kind{
	{
		Name: "BGPConfiguration", Plural: "BGPConfigurations", Aliases: []string{"bgpconfig", "bgpconfigs"},
		always: true, newSpec: func() any { return &BGPConfiguration{} }, ranges: prefix(model.BGPPrefix(), model.ConfigPrefix()), read: readBGPConfiguration, write: writeBGPConfiguration,
		Columns: []Column{
			cell("MESH", false, func(c *BGPConfiguration) string {
				return fmt.Sprint(c.NodeToNodeMeshEnabled == nil || *c.NodeToNodeMeshEnabled)
			}),
			cell("ASNUMBER", false, func(c *BGPConfiguration) string { return text(c.ASNumber) }),
		},
	},
	{
		Name: "BGPPeer", Plural: "BGPPeers",
		newSpec: func() any { return &BGPPeer{} }, ranges: prefix(model.BGPPrefix(), model.ConfigPrefix(), model.HostPrefix("")), read: readPeers, write: writePeer,
		Columns: []Column{
			cell("PEERIP", false, func(p *BGPPeer) string { return text(p.PeerIP) }),
			cell("NODE", false, func(p *BGPPeer) string {
				if p.Node == "" {
					return "(global)"
				}
				return p.Node
			}),
			cell("ASN", false, func(p *BGPPeer) string { return text(p.ASNumber) }),
		},
	},
	{
		Name: "ClusterInformation", Plural: "ClusterInformations", Aliases: []string{"clusterinfo", "clusterinfos"},
		newSpec: func() any { return &ClusterInformation{} }, ranges: append(prefix(model.ConfigPrefix()), model.KeyRange(model.ReadyKey{})), read: readClusterInformation, write: writeClusterInformation,
		mayDelete: func(Stored, []model.Entry) error { return fmt.Errorf("it is always there") },
		Columns: []Column{
			cell("CLUSTERGUID", false, func(c *ClusterInformation) string { return c.ClusterGUID }),
			cell("READY", false, func(c *ClusterInformation) string { return fmt.Sprint(orZero(c.DatastoreReady)) }),
		},
	},
	{
		Name: "DHCPSubnet", Plural: "DHCPSubnets", Aliases: []string{"subnet", "subnets"},
		newSpec: func() any { return &DHCPSubnet{} }, ranges: prefix(model.SubnetPrefix()), read: readSubnets, write: writeSubnet,
		Columns: []Column{
			cell("CIDR", false, func(s *DHCPSubnet) string { return s.CIDR.String() }),
			cell("GATEWAY", false, func(s *DHCPSubnet) string { return text(s.GatewayIP) }),
			cell("NETWORK", true, func(s *DHCPSubnet) string { return s.NetworkID }),
		},
	},
	{
		Name: "FelixConfiguration", Plural: "FelixConfigurations", Aliases: []string{"felixconfig", "felixconfigs"},
		always: true, newSpec: func() any { return &FelixConfiguration{} }, ranges: prefix(model.ConfigPrefix(), model.HostPrefix("")), read: readFelix, write: writeFelix,
	},
	{
		Name: "GlobalNetworkPolicy", Plural: "GlobalNetworkPolicies", Aliases: []string{"gnp", "gnps"},
		newSpec: func() any { return &Policy{} }, ranges: prefix(model.PolicyPrefix()), narrow: narrowPolicy, beside: model.PolicyPrefix(), read: readPolicies(false), write: writePolicy, mayDelete: deletablePolicy,
		Columns: policyColumns,
	},
	{
		Name: "HostEndpoint", Plural: "HostEndpoints", Aliases: []string{"hep", "heps"}, Labelled: true,
		newSpec: func() any { return &HostEndpoint{} }, ranges: prefix(model.HostPrefix("")), read: readHostEndpoints, write: writeHostEndpoint,
		Columns: []Column{
			cell("NODE", false, func(h *HostEndpoint) string { return h.Node }),
			cell("INTERFACE", true, func(h *HostEndpoint) string { return h.InterfaceName }),
			cell("IPS", true, func(h *HostEndpoint) string { return joined(h.ExpectedIPs) }),
			cell("PROFILES", true, func(h *HostEndpoint) string { return strings.Join(h.Profiles, ",") }),
		},
	},
	{
		Name: "IPAMConfiguration", Plural: "IPAMConfigurations", Aliases: []string{"ipamconfig", "ipamconfigs"},
		always: true, newSpec: func() any { return &IPAMConfiguration{} }, ranges: []model.Range{model.KeyRange(model.IPAMConfigKey{})}, read: readIPAMConfiguration, write: writeIPAMConfiguration,
		Columns: []Column{
			cell("STRICTAFFINITY", false, func(c *IPAMConfiguration) string { return fmt.Sprint(orZero(c.StrictAffinity)) }),
			cell("AUTOALLOCATEBLOCKS", false, func(c *IPAMConfiguration) string {
				return fmt.Sprint(c.AutoAllocateBlocks == nil || *c.AutoAllocateBlocks)
			}),
		},
	},
	{
		Name: "IPPool", Plural: "IPPools", Aliases: []string{"ipp", "ipps", "pool", "pools"},
		newSpec: func() any { return &IPPool{} }, ranges: prefix(model.PoolPrefix(), model.BlockPrefix(false), model.BlockPrefix(true)), read: readPools, write: writePool, mayDelete: poolInUse,
		Columns: []Column{
			cell("CIDR", false, func(p *IPPool) string { return p.CIDR.String() }),
			cell("NAT", true, func(p *IPPool) string { return fmt.Sprint(p.NATOutgoing) }),
			cell("IPIPMODE", true, func(p *IPPool) string { return string(p.IPIPMode) }),
			cell("VXLANMODE", true, func(p *IPPool) string { return string(p.VXLANMode) }),
			cell("DISABLED", true, func(p *IPPool) string { return fmt.Sprint(p.Disabled) }),
			cell("SELECTOR", false, func(p *IPPool) string { return p.NodeSelector }),
		},
	},
	{
		Name: "NetworkPolicy", Plural: "NetworkPolicies", Aliases: []string{"np", "nps", "policy", "policies", "pol"}, Namespaced: true,
		newSpec: func() any { return &Policy{} }, ranges: prefix(model.PolicyPrefix()), narrow: narrowPolicy, beside: model.PolicyPrefix(), read: readPolicies(true), write: writePolicy, mayDelete: deletablePolicy,
		Columns: policyColumns,
	},
	{
		Name: "Node", Plural: "Nodes", Labelled: true,
		newSpec: func() any { return &Node{} }, ranges: prefix(model.HostPrefix(""), model.BGPPrefix(), model.StatusPrefix(""), model.AffinityPrefix(""), model.NetworkServiceEndpointPrefix()), read: readNodes, write: writeNode, mayDelete: nodeInUse, vacant: placesOfNode, rest: restOfNode,
		Columns: []Column{
			{"ASN", true, func(r Resource) string { return r.as }},
			cell("IPV4", true, func(n *Node) string { return text(orZero(n.BGP).IPv4Address) }),
			cell("IPV6", true, func(n *Node) string { return text(orZero(n.BGP).IPv6Address) }),
		},
	},
	{
		Name: "Profile", Plural: "Profiles",
		newSpec: func() any { return &Profile{} }, ranges: prefix(model.PolicyPrefix()), narrow: narrowProfile, read: readProfiles, write: writeProfile, mayDelete: ownProfile,
		Columns: []Column{
			cell("LABELS", true, func(p *Profile) string { return fmt.Sprint(len(p.LabelsToApply)) }),
		},
	},
	{
		Name: "Tier", Plural: "Tiers",
		newSpec: func() any { return &Tier{} }, ranges: prefix(model.PolicyPrefix()), narrow: narrowTier, read: readTiers, write: writeTier, mayDelete: tierInUse, vacant: placesOfTier, implied: defaultTier,
		Columns: []Column{
			cell("ORDER", false, func(t *Tier) string { return order(t.Order) }),
			cell("DEFAULTACTION", false, func(t *Tier) string { return string(t.DefaultAction) }),
		},
	},
	{
		Name: "WorkloadEndpoint", Plural: "WorkloadEndpoints", Aliases: []string{"wep", "weps"}, Namespaced: true, Labelled: true,
		newSpec: func() any { return &WorkloadEndpoint{} }, ranges: prefix(model.HostPrefix("")), read: readWorkloadEndpoints, write: writeWorkloadEndpoint, mayDelete: ownWorkload,
		Columns: []Column{
			cell("WORKLOAD", false, func(w *WorkloadEndpoint) string { return w.Workload }),
			cell("NODE", false, func(w *WorkloadEndpoint) string { return w.Node }),
			cell("NETWORKS", false, func(w *WorkloadEndpoint) string { return joined(w.IPNetworks) }),
			cell("INTERFACE", false, func(w *WorkloadEndpoint) string { return w.InterfaceName }),
			cell("PROFILES", true, func(w *WorkloadEndpoint) string { return strings.Join(w.Profiles, ",") }),
		},
	},
}
