// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// Key names one object of the data model. Every key type is a comparable
// struct; Path is where the object is stored in etcd. ParseKey is the inverse
// of Path for every key type, the older places included: those have a Legacy
// field, which Path honours, so that a key read from an older place is never
// confused with the canonical one.
type Key interface {
	Path() string
}

type (
	// ReadyKey guards the whole tree: missing or false means "wait". Value: Ready.
	ReadyKey struct{}
	// GlobalConfigKey is one agent setting of all hosts. Value: Text.
	GlobalConfigKey struct{ Name string }
	// HostConfigKey is one agent setting of one host. Value: Text.
	HostConfigKey struct{ Host, Name string }
	// HostMetadataKey says that the host exists. Value: HostMetadata.
	HostMetadataKey struct{ Host string }
	// HostBirdIPKey is the host's address in its older place. Value: Text.
	HostBirdIPKey struct{ Host string }
	// WorkloadEndpointKey is one workload interface. Value: WorkloadEndpoint.
	WorkloadEndpointKey struct{ Host, Orchestrator, Workload, Endpoint string }
	// HostEndpointKey is one interface of a host itself. Value: HostEndpoint.
	HostEndpointKey struct{ Host, Endpoint string }
	// ProfileRulesKey is what a profile allows. Value: Rules. The three keys of
	// a profile together are the profile; any may be missing.
	ProfileRulesKey struct{ Profile string }
	// ProfileTagsKey is the tags of a profile. Value: Tags.
	ProfileTagsKey struct{ Profile string }
	// ProfileLabelsKey is the labels of a profile. Value: Labels.
	ProfileLabelsKey struct{ Profile string }
	// TierKey is the metadata of a tier. Value: Tier.
	TierKey struct{ Tier string }
	// PolicyKey is one selector-based policy. Value: Policy.
	PolicyKey struct{ Tier, Policy string }
	// PoolKey is one IP pool; the CIDR decides the family. Value: Pool.
	PoolKey struct{ CIDR netip.Prefix }
	// BlockKey is one allocation block. Value: Block.
	BlockKey struct{ CIDR netip.Prefix }
	// HandleKey is one allocation handle. Value: Handle.
	// Legacy: the older place, ipam/v2/assignment/handle/<id>.
	HandleKey struct {
		ID     string
		Legacy bool
	}
	// AffinityKey says that the host has affinity to the block. Value: Affinity.
	AffinityKey struct {
		Host string
		CIDR netip.Prefix
	}
	// IPAMConfigKey holds the settings of address management. Value: IPAMConfig.
	IPAMConfigKey struct{}
	// BGPGlobalASKey is the AS number of hosts without their own. Value: ASNumber.
	BGPGlobalASKey struct{}
	// BGPMeshKey switches the node-to-node mesh. Value: Mesh.
	// Legacy: /calico/v1/config/bgp_node_mesh.
	BGPMeshKey struct{ Legacy bool }
	// BGPPeerKey is one explicit peer; Host "" means a peer of all hosts. Value: BGPPeer.
	// Legacy: /calico/v1/config/bgp_peer_v4/<ip>, /calico/v1/host/<host>/bgp_peer_v4/<ip>.
	BGPPeerKey struct {
		Host   string
		IP     netip.Addr
		Legacy bool
	}
	// BGPHostKey is one BGP setting of a host. Value: Text (empty = not set).
	BGPHostKey struct {
		Host  string
		Field BGPHostField
	}
	// StatusKey is the live status of a host's agent, under a lease. Value: Status.
	StatusKey struct{ Host string }
	// LastStatusKey is the same without a lease. Value: Status.
	LastStatusKey struct{ Host string }
	// WorkloadStatusKey is an agent's report on a workload endpoint. Value: EndpointStatus.
	WorkloadStatusKey struct{ Host, Orchestrator, Workload, Endpoint string }
	// HostEndpointStatusKey is an agent's report on a host endpoint. Value: EndpointStatus.
	HostEndpointStatusKey struct{ Host, Endpoint string }
	// DHCPSubnetKey is one DHCP subnet. Value: Subnet.
	DHCPSubnetKey struct{ ID string }
)

// BGPHostField names a setting below /calico/bgp/v1/host/<host>/.
type BGPHostField string

const (
	BGPHostIPv4      BGPHostField = "ip_addr_v4"
	BGPHostIPv6      BGPHostField = "ip_addr_v6"
	BGPHostAS        BGPHostField = "as_num"
	BGPHostNetworkV4 BGPHostField = "network_v4"
	// BGPHostReflector is a route reflector's cluster id.
	BGPHostReflector BGPHostField = "route_reflector_cluster_id"
)

// Remedy says what to do about a key whose value does not parse. A block must not
// be deleted while workloads have addresses of it: another host would claim it
// anew, and give them again.
func Remedy(path string) string {
	if k, err := ParseKey(path); err == nil {
		if _, ok := k.(BlockKey); ok {
			return "correct it, and don't delete it while workloads have its addresses"
		}
	}
	return "correct or delete it"
}
