// SPDX-License-Identifier: Apache-2.0

// Package model is Calico's data model in etcd: its keys and values, how each is written, and how every form of each,
// including older ones, is read.
//
// Writing is canonical, reading is tolerant: ParseKey and ParseValue accept every documented form, Path and FormatValue
// produce one.
package model

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Ready is the value of ReadyKey, "true" or "false".
type Ready bool

// Text is a value that is stored unchanged, without JSON.
type Text string

// HostMetadata is the value of HostMetadataKey; it may be empty.
type HostMetadata struct {
	// Labels are matched against the node_selector of pools.
	Labels map[string]string `json:"labels,omitempty"`
	// Kubernetes is the host's Node. The zero value means that the host isn't known to be one.
	Kubernetes KubernetesNode `json:"k8s,omitzero"`
}

// KubernetesNode identifies a Node. Another Node with the same name has another UID.
type KubernetesNode struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// EndpointState says whether an endpoint may send and receive at all.
type EndpointState string

const (
	StateActive   EndpointState = "active"
	StateInactive EndpointState = "inactive"
)

// WorkloadEndpoint is one interface of a workload. MAC and addresses are those of the pod's or VM's end; Name is the
// host's end.
type WorkloadEndpoint struct {
	State       EndpointState
	Name        string
	MAC         MAC
	ProfileIDs  []string
	IPv4NAT     []NAT
	IPv4Nets    []netip.Prefix // each a /32
	IPv6NAT     []NAT
	IPv6Nets    []netip.Prefix // each a /128
	IPv4Gateway netip.Addr
	IPv6Gateway netip.Addr
	Labels      map[string]string

	// Additions, which older readers ignore.

	// IPv4SubnetIDs and IPv6SubnetIDs are parallel to the nets (DHCP).
	IPv4SubnetIDs []string
	IPv6SubnetIDs []string
	FQDN          string
	// ContainerID is the sandbox that currently owns this endpoint.
	ContainerID string
	// PodUID is the UID of the Kubernetes pod that the endpoint was written for.
	PodUID string
	Ports  []EndpointPort
	MTU    int // bytes, 0 = unspecified
	// MaxConnections is how many connections it may have begun at a time, 0 = as configured in the host's agent.
	MaxConnections int
}

// NAT maps ExtIP to IntIP, 1:1.
type NAT struct {
	IntIP, ExtIP netip.Addr
}

// EndpointPort is a named port of a container.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// HostEndpoint is one interface of a host itself, identified by name or else by one of its expected addresses.
type HostEndpoint struct {
	Name              string
	ExpectedIPv4Addrs []netip.Addr
	ExpectedIPv6Addrs []netip.Addr
	ProfileIDs        []string
	Labels            map[string]string
	Meta
}

// Tags classify the endpoints of a profile.
type Tags []string

// Labels of a profile are inherited by its endpoints.
type Labels map[string]string

// Rules are the access rules of a profile.
type Rules struct {
	Inbound  []Rule
	Outbound []Rule
}

// Action is what a rule does with a packet that it matches.
type Action string

const (
	ActionAllow    Action = "allow"
	ActionDeny     Action = "deny"
	ActionLog      Action = "log"
	ActionNextTier Action = "next-tier"
)

// Rule matches packets that meet all of its criteria, positive and negated.
type Rule struct {
	Action    Action // never empty: a missing action is read as allow
	IPVersion int    // 4, 6 or 0 for both
	Match     Match  // must hold
	Not       Match  // none of these may hold; ICMPType and ICMPCode negate together
	LogPrefix string
}

// Match is a set of criteria; a zero field does not constrain.
type Match struct {
	Protocol    Protocol
	SrcTag      string
	DstTag      string
	SrcSelector string // as written; valid if the rule parsed
	DstSelector string
	// HasSrcSelector and HasDstSelector distinguish an empty selector, which matches every endpoint, from an absent
	// one.
	HasSrcSelector, HasDstSelector bool
	SrcNets                        []netip.Prefix // src_net and src_nets; any of them
	DstNets                        []netip.Prefix
	SrcPorts                       []Port
	DstPorts                       []Port
	ICMPType                       *uint8
	ICMPCode                       *uint8
}

// Policy applies its rules to the endpoints that its selector selects.
type Policy struct {
	Selector  string
	Order     *float64 // nil sorts last
	Inbound   []Rule
	Outbound  []Rule
	Untracked bool
	// PreDNAT policies apply to packets that arrive by a host endpoint, before any destination NAT. Forward
	// (apply_on_forward) policies apply to packets forwarded through a host endpoint, too.
	PreDNAT, Forward bool
	// Types are the directions in which the policy decides; empty means both.
	Types []Direction
	Meta
}

// Direction is seen from the endpoint.
type Direction string

const (
	Inbound  Direction = "inbound"
	Outbound Direction = "outbound"
)

// DefaultTier is the tier of most policies. Its order is DefaultTierOrder and its action TierDeny, regardless of its
// metadata.
const (
	DefaultTier              = "default"
	DefaultTierOrder float64 = 1_000_000
)

// Tier is the metadata of a tier. A tier that has policies but no metadata is like the zero value.
type Tier struct {
	Order         *float64 // nil sorts last
	DefaultAction TierAction
	Meta
}

// TierAction is what a tier does if some of its policies apply and none decides.
type TierAction string

const (
	TierDeny TierAction = ""     // stored as "deny", or not at all
	TierPass TierAction = "pass" // continue with the next tier, after the last one with the profiles
)

// Service is what a Kubernetes Service leads to: packets to a port of ServicePort's name.
type Service struct {
	Endpoints []ServiceEndpoints
}

// ServiceEndpoints are addresses that each have all of some ports.
type ServiceEndpoints struct {
	Nets  []netip.Prefix // single addresses
	Ports []EndpointPort // of ServicePort's name
}

// NetworkSet is a set of networks, which the selectors of rules match by its labels.
type NetworkSet struct {
	Nets   []netip.Prefix // of both families
	Labels map[string]string
	Meta
}

// EncapMode says when packets of a pool are encapsulated.
type EncapMode string

const (
	EncapNever       EncapMode = ""
	EncapAlways      EncapMode = "always"
	EncapCrossSubnet EncapMode = "cross-subnet"
)

// Pool is a range of addresses for workloads.
type Pool struct {
	CIDR         netip.Prefix
	IPIP         string    // device name, "" = no IPIP
	IPIPMode     EncapMode // EncapNever if IPIP is ""
	VXLANMode    EncapMode
	Masquerade   bool
	IPAM         bool // assigns addresses; absent means true
	Disabled     bool
	BlockSize    int    // prefix length of the pool's blocks; absent means 26 or 122
	NodeSelector string // "" = every node
	// NamespaceSelector is over the labels of Kubernetes' namespaces, and projectcalico.org/name for the name; "" = pods
	// of every namespace, and other workloads.
	NamespaceSelector string
	// DisableBGPExport says that BGP does not announce its routes.
	DisableBGPExport bool
	// AllowedUses are the permitted uses of its addresses, separated by commas: see Serves. "" = ForWorkloads and
	// ForTunnels.
	AllowedUses string
	Manual      bool // serves only requests that name it, or an address of it; absent means false
	Meta             // without a name, it is named after its CIDR
}

// Uses of a pool's addresses, as in Pool.AllowedUses. There may be others, which are not ours.
const (
	ForWorkloads = "Workload"
	ForTunnels   = "Tunnel"
)

// Serves reports whether addresses of the pool may be used for the given use.
func (p Pool) Serves(use string) bool {
	return p.AllowedUses == "" || slices.Contains(strings.Split(p.AllowedUses, ","), use)
}

// Reservation is a set of addresses that are assigned only on request.
type Reservation struct {
	CIDRs []netip.Prefix
	Meta
}

// Free marks a free address in Block.Allocations.
const Free = -1

// Block is a range of addresses, usually with affinity to one host.
type Block struct {
	CIDR           netip.Prefix
	Affinity       string // host name, "" = none
	StrictAffinity bool
	// Allocations has an entry per address: Free, or an index into Attributes.
	Allocations []int
	// Unallocated lists the free ordinals in the order in which they will be assigned.
	Unallocated []int
	Attributes  []Attributes
	// EmptySince is when the last address was released, zero while any is allocated. Other hosts may take over a block
	// that has been empty for a while.
	EmptySince time.Time
}

// Attributes say who holds addresses of a block.
type Attributes struct {
	HandleID  string
	Secondary map[string]string
}

// Handle counts the addresses that one owner holds in each block.
type Handle struct {
	ID     string
	Blocks map[netip.Prefix]int
}

// Affinity is the value of AffinityKey. It is empty.
type Affinity struct{}

// IPAMConfig controls allocation. The zero value is not the default: see DefaultIPAMConfig.
type IPAMConfig struct {
	StrictAffinity     bool // never borrow from another host's block
	AutoAllocateBlocks bool // hosts may claim new blocks
	Meta
}

// DefaultIPAMConfig applies if nothing is stored.
var DefaultIPAMConfig = IPAMConfig{AutoAllocateBlocks: true}

// Mesh switches the node-to-node BGP mesh.
type Mesh struct{ Enabled bool }

// ASNumber is a BGP autonomous system number, read as decimal or as high.low (RFC 5396).
type ASNumber uint32

// BGPPeer is one explicit BGP neighbour, or if it has a PeerSelector, one for each host that it selects.
type BGPPeer struct {
	IP           netip.Addr
	AS           ASNumber
	PasswordFile string
	EBGPMultihop int // 0 = off
	Options      PeerOptions
	Import       []RouteFilter
	Export       []RouteFilter
	Filters      []string // names of BGPFilters, which decide after Import and Export
	PeerHosts
	Meta // without a name, it is named after its address
}

// PeerHosts are the hosts at both ends of a peer by name.
type PeerHosts struct {
	// Host or NodeSelector are the hosts that have the peer, both "" = all.
	Host, NodeSelector string
	// PeerSelector selects the hosts that it leads to, "" = it has an address.
	PeerSelector string
	// OneWay says that the hosts that PeerSelector selects don't peer back.
	OneWay bool
}

// PeerOptions are options that few peers need. Zero values are the defaults.
type PeerOptions struct {
	// Port is the TCP port of the peer, 0 = 179, or that of the hosts if it is one of them.
	Port int `json:",omitempty"`
	// AllowedLocalAS is how often a route's AS path may contain the AS of this end.
	AllowedLocalAS int
	// LocalAS is the AS of this end in the session.
	LocalAS ASNumber
	// TTLSecurity is the maximum distance of the peer in hops (RFC 5082): packets with a lower TTL are dropped.
	TTLSecurity int
	// KeepaliveTime, HoldTime and MaxRestartTime are in seconds.
	KeepaliveTime, HoldTime, MaxRestartTime int
	// Source is the address that the host speaks from, NextHop the next hop of the routes that it reflects.
	Source  PeerSource
	NextHop NextHopMode
}

// PeerSource is the address that a host speaks from. The zero value means the host's own.
type PeerSource struct {
	Address netip.Addr
	Any     bool // the address of the link that leads to the peer
}

// NextHopMode says which next hop a reflector passes on. "" keeps it, except as the standard says.
type NextHopMode string

// Next hops of reflected routes.
const (
	NextHopSelf NextHopMode = "self" // the reflector
	NextHopKeep NextHopMode = "keep" // unchanged
)

// RouteFilter accepts or rejects routes that meet all conditions. The first match decides. That of a BGPPeer has only a
// CIDR.
type RouteFilter struct {
	CIDR   netip.Prefix // invalid = any
	Action string       // "accept" or "reject"
	// Match is how a prefix relates to CIDR; "" = MatchIn. Min and Max are the lengths of the prefixes that are in it,
	// 0 = its own length, and the longest.
	Match MatchOperator `json:",omitempty"`
	Min   int           `json:",omitempty"`
	Max   int           `json:",omitempty"`
	// Learned says that the route came from a BGP peer.
	Learned bool `json:",omitempty"`
	// PeerType is that of the peer that it comes from or goes to, "" = any.
	PeerType  PeerType `json:",omitempty"`
	Community string   `json:",omitempty"` // that it has, see ParseCommunity; "" = any
	ASPath    string   `json:",omitempty"` // AS numbers that its AS path begins with, separated by spaces
}

// MatchOperator is how a prefix relates to a CIDR.
type MatchOperator string

// The operators.
const (
	MatchEqual    MatchOperator = "Equal"
	MatchNotEqual MatchOperator = "NotEqual"
	MatchIn       MatchOperator = "In"
	MatchNotIn    MatchOperator = "NotIn"
)

// PeerType is external if the peer's AS is another one.
type PeerType string

// The types of peers.
const (
	ExternalPeer PeerType = "eBGP"
	InternalPeer PeerType = "iBGP"
)

// BGPFilter is a list of route filters for each direction and family.
type BGPFilter struct {
	ImportV4, ExportV4, ImportV6, ExportV6 []RouteFilter
	Meta
}

// Status is an agent's report on itself.
type Status struct {
	Time        time.Time
	Uptime      time.Duration // stored in seconds
	FirstUpdate bool
	// PolicyRevision is the latest revision of etcd at which an object of the Kubernetes API wrote what is in force on the host; 0 = none.
	PolicyRevision int64
}

// EndpointStatus is an agent's report on an endpoint: "up", "down" or "error".
type EndpointStatus string

const (
	EndpointUp    EndpointStatus = "up"
	EndpointDown  EndpointStatus = "down"
	EndpointError EndpointStatus = "error"
)

// GarbageBrake says why garbage collection is paused: one pass would have removed too much. It continues, up to the
// amount recorded here, once a person has set Resumed.
type GarbageBrake struct {
	Time      time.Time
	Reason    string
	Hosts     int                  // to be removed
	Addresses map[netip.Prefix]int // to be freed, by pool
	Resumed   bool
}

// ControllersConfig configures the controllers, where neither their flags nor their environment do.
type ControllersConfig struct {
	Disabled          []string // those that don't run: of Controllers
	LogSeverityScreen string   // debug, info, warning or error, "" = info
	MetricsPort       *int     // TCP port of metrics, 0 = none, nil = 9094
	Meta
}

// Subnet is what DHCP tells the endpoints of one network.
type Subnet struct {
	NetworkID  string // absent means "calico"
	CIDR       netip.Prefix
	GatewayIP  netip.Addr
	DNSServers []netip.Addr
	HostRoutes []HostRoute
	Meta
}

// HostRoute is a classless static route (RFC 3442).
type HostRoute struct {
	Destination netip.Prefix
	NextHop     netip.Addr
}
