// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"strings"
)

// Key identifies one object of the data model. Every key type is a comparable struct. Path is where the object is
// stored in etcd. ParseKey is the inverse of Path for every key type, including the older places: their keys have a
// Legacy field, which Path honours, so that a key read from an older place is never confused with the canonical one.
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
	// MetaKey is what a resource has besides its spec, if the values of the resource have no place for it. Value: Meta.
	MetaKey struct{ Kind, Name string }
	// ServiceKey is what a service leads to that rules name. Name is <namespace>/<name>. Value: Service.
	ServiceKey struct{ Name string }
	// NetworkSetKey is one set of networks. Name is <namespace>/<name> for a set of a namespace. Value: NetworkSet.
	NetworkSetKey struct{ Name string }
	// PoolKey is one IP pool; the CIDR decides the family. Value: Pool.
	PoolKey struct{ CIDR netip.Prefix }
	// BlockKey is one allocation block. Value: Block.
	BlockKey struct{ CIDR netip.Prefix }
	// HandleKey is one allocation handle. Value: Handle. Legacy is the older place, ipam/v2/assignment/handle/<id>.
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
	// ReservationKey is one set of addresses that are not assigned by themselves. Value: Reservation.
	ReservationKey struct{ Name string }
	// BGPGlobalASKey is the AS number of hosts without their own. Value: ASNumber.
	BGPGlobalASKey struct{}
	// BGPMeshKey switches the node-to-node mesh. Value: Mesh. Legacy is /calico/v1/config/bgp_node_mesh.
	BGPMeshKey struct{ Legacy bool }
	// BGPPeerKey is one explicit peer; Host "" means a peer of all hosts. Value: BGPPeer. Legacy is
	// /calico/v1/config/bgp_peer_v4/<ip>, /calico/v1/host/<host>/bgp_peer_v4/<ip>. If it has a Name, the value says all
	// else: a peer with a selector.
	BGPPeerKey struct {
		Host   string
		IP     netip.Addr
		Legacy bool
		Name   string
	}
	// BGPFilterKey is one filter that peers name. Value: BGPFilter.
	BGPFilterKey struct{ Name string }
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
	// GarbageBrakeKey exists while the controllers' garbage collection is paused. Value: GarbageBrake.
	GarbageBrakeKey struct{}
	// LeaderKey names the leader among the controllers; all its writes compare this key. Value: Text.
	LeaderKey struct{}
	// ControllersConfigKey configures the controllers. Value: ControllersConfig.
	ControllersConfigKey struct{}
	// DHCPSubnetKey is one DHCP subnet. Value: Subnet.
	DHCPSubnetKey struct{ ID string }
	// NetworkServiceEndpointKey is one endpoint of a network service. Value: NetworkServiceEndpoint.
	NetworkServiceEndpointKey struct{ Service, Host, Name string }
	// NetworkServiceKey is one network service. Value: NetworkService.
	NetworkServiceKey struct{ Name string }
)

// BGPHostField names a setting below /calico/bgp/v1/host/<host>/.
type BGPHostField string

const (
	BGPHostIPv4      BGPHostField = "ip_addr_v4"
	BGPHostIPv6      BGPHostField = "ip_addr_v6"
	BGPHostAS        BGPHostField = "as_num"
	BGPHostNetworkV4 BGPHostField = "network_v4"
	// BGPHostReflector is a route reflector's cluster ID.
	BGPHostReflector BGPHostField = "route_reflector_cluster_id"
)

// Remedy says what to do about a key whose value does not parse. A block must not be deleted while workloads have
// addresses from it: another host would claim it anew and assign them again.
func Remedy(path string) string {
	if k, err := ParseKey(path); err == nil {
		if _, ok := k.(BlockKey); ok {
			return "correct it, and don't delete it while workloads have its addresses"
		}
	}
	return "correct or delete it"
}

func (ReadyKey) Path() string        { return v1Root + "Ready" }
func (k HostConfigKey) Path() string { return join(v1Root+"host/*/config/*", k.Host, k.Name) }
func (k HostMetadataKey) Path() string {
	return join(v1Root+"host/*/metadata", k.Host)
}
func (k HostBirdIPKey) Path() string   { return join(v1Root+"host/*/bird_ip", k.Host) }
func (k MetaKey) Path() string         { return join(v1Root+"meta/*/*", k.Kind, k.Name) }
func (k HostEndpointKey) Path() string { return join(v1Root+"host/*/endpoint/*", k.Host, k.Endpoint) }

// Pod returns the Kubernetes pod that the interface belongs to, "" if none.
func (k WorkloadEndpointKey) Pod() (namespace, name string) {
	namespace, name, ok := strings.Cut(k.Workload, ".")
	if k.Orchestrator != "k8s" || !ok {
		return "", ""
	}
	return namespace, name
}

func (k WorkloadEndpointKey) Path() string {
	return join(v1Root+"host/*/workload/*/*/endpoint/*", k.Host, k.Orchestrator, k.Workload, k.Endpoint)
}

// Path returns the path of the setting. The names of BGP's older places belong to BGPMeshKey and BGPPeerKey.
func (k GlobalConfigKey) Path() string { return join(v1Root+"config/*", k.Name) }

func (k ProfileRulesKey) Path() string  { return join(v1Root+"policy/profile/*/rules", k.Profile) }
func (k ProfileTagsKey) Path() string   { return join(v1Root+"policy/profile/*/tags", k.Profile) }
func (k ProfileLabelsKey) Path() string { return join(v1Root+"policy/profile/*/labels", k.Profile) }
func (k TierKey) Path() string          { return join(v1Root+"policy/tier/*/metadata", k.Tier) }
func (k PolicyKey) Path() string        { return join(v1Root+"policy/tier/*/policy/*", k.Tier, k.Policy) }
func (k ServiceKey) Path() string       { return join(v1Root+"service/*", k.Name) }
func (k NetworkSetKey) Path() string    { return join(v1Root+"netset/*", k.Name) }

func (IPAMConfigKey) Path() string    { return ipamRoot + "config" }
func (k ReservationKey) Path() string { return join(ipamRoot+"reservation/*", k.Name) }
func (k PoolKey) Path() string {
	return v1Root + "ipam/" + vFamily(isV6(k.CIDR)) + "/pool/" + cidrName(k.CIDR)
}
func (k BlockKey) Path() string { return BlockPrefix(isV6(k.CIDR)) + cidrName(k.CIDR) }
func (k AffinityKey) Path() string {
	return join(ipamRoot+"host/*/", k.Host) + ipFamily(isV6(k.CIDR)) + "/block/" + cidrName(k.CIDR)
}
func (k HandleKey) Path() string {
	if k.Legacy {
		return join(ipamRoot+"assignment/handle/*", k.ID)
	}
	return join(ipamRoot+"handle/*", k.ID)
}

func (BGPGlobalASKey) Path() string { return bgpRoot + "global/as_num" }
func (k BGPHostKey) Path() string   { return join(bgpRoot+"host/*/*", k.Host, string(k.Field)) }
func (k BGPMeshKey) Path() string {
	if k.Legacy {
		return v1Root + "config/bgp_node_mesh"
	}
	return bgpRoot + "global/node_mesh"
}
func (k BGPPeerKey) Path() string {
	var dir string
	switch {
	case k.Name != "":
		return join(bgpRoot+"peer/*", k.Name)
	case k.Legacy && k.Host == "":
		dir = v1Root + "config/bgp_peer_"
	case k.Legacy:
		dir = join(v1Root+"host/*/bgp_peer_", k.Host)
	case k.Host == "":
		dir = bgpRoot + "global/peer_"
	default:
		dir = join(bgpRoot+"host/*/peer_", k.Host)
	}
	return dir + vFamily(k.IP.Is6()) + "/" + k.IP.String()
}

func (k BGPFilterKey) Path() string { return join(FilterPrefix()+"*", k.Name) }

func (LeaderKey) Path() string { return v1Root + "controllers/leader" }

func (k StatusKey) Path() string     { return join(felixRoot+"host/*/status", k.Host) }
func (k LastStatusKey) Path() string { return join(felixRoot+"host/*/last_reported_status", k.Host) }
func (k HostEndpointStatusKey) Path() string {
	return join(felixRoot+"host/*/endpoint/*", k.Host, k.Endpoint)
}
func (k WorkloadStatusKey) Path() string {
	return join(felixRoot+"host/*/workload/*/*/endpoint/*", k.Host, k.Orchestrator, k.Workload, k.Endpoint)
}

func (GarbageBrakeKey) Path() string { return v1Root + "controllers/gc" }

func (ControllersConfigKey) Path() string { return v1Root + "controllers/config" }

func (k DHCPSubnetKey) Path() string { return join(SubnetPrefix()+"*", k.ID) }

func (k NetworkServiceEndpointKey) Path() string {
	return join(NetworkServiceEndpointPrefix()+"*/*/*", k.Service, k.Host, k.Name)
}
func (k NetworkServiceKey) Path() string { return join(NetworkServicePrefix()+"*", k.Name) }
