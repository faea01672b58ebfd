// SPDX-License-Identifier: Apache-2.0

// Package model is the etcd data model of Calico: its keys, its values, how
// each is written and how every form of each, older ones included, is read.
//
// Writing is canonical, reading is tolerant: ParseKey and ParseValue accept
// each documented form, Path and FormatValue give one.
package model

import (
	"net/netip"
	"time"
)

// Ready is the value of ReadyKey, "true" or "false".
type Ready bool

// Text is a value that is stored as it is, without JSON.
type Text string

// HostMetadata is the value of HostMetadataKey; it may be empty.
type HostMetadata struct {
	// Labels are what a pool's node_selector is matched against.
	Labels map[string]string `json:"labels,omitempty"`
}

// EndpointState says whether an endpoint may send and receive at all.
type EndpointState string

const (
	StateActive   EndpointState = "active"
	StateInactive EndpointState = "inactive"
)

// WorkloadEndpoint is one interface of a workload. The interface and its
// addresses are those of the pod's or VM's end; Name is the host's end.
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

	// Additions, ignored by older readers.

	// IPv4SubnetIDs and IPv6SubnetIDs are parallel to the nets (DHCP).
	IPv4SubnetIDs []string
	IPv6SubnetIDs []string
	FQDN          string
	// ContainerID is the sandbox that owns this endpoint now.
	ContainerID string
	Ports       []EndpointPort
	MTU         int // bytes, 0 = not stated
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

// HostEndpoint is one interface of a host itself, found by name or else by one of its expected addresses.
type HostEndpoint struct {
	Name              string
	ExpectedIPv4Addrs []netip.Addr
	ExpectedIPv6Addrs []netip.Addr
	ProfileIDs        []string
	Labels            map[string]string
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

// Rule matches packets by all of its criteria, positive and negated, at once.
type Rule struct {
	Action    Action // never empty: missing is read as allow
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
	SrcSelector string // as written; valid where the rule parsed
	DstSelector string
	// HasSrcSelector and HasDstSelector tell an empty selector, which matches every endpoint, from an absent one.
	HasSrcSelector, HasDstSelector bool
	SrcNets                        []netip.Prefix // src_net and src_nets; any
	DstNets                        []netip.Prefix
	SrcPorts                       []Port
	DstPorts                       []Port
	ICMPType                       *uint8
	ICMPCode                       *uint8
}

// Policy applies its rules to the endpoints that its selector picks.
type Policy struct {
	Selector  string
	Order     *float64 // nil sorts last
	Inbound   []Rule
	Outbound  []Rule
	Untracked bool
	// Types are the directions in which the policy decides at all; empty is both.
	Types []Direction
}

// Direction is seen from the endpoint.
type Direction string

const (
	Inbound  Direction = "inbound"
	Outbound Direction = "outbound"
)

// Tier is the metadata of a tier; a nil Order sorts last.
type Tier struct{ Order *float64 }

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
	IPIPMode     EncapMode // EncapNever where IPIP is ""
	VXLANMode    EncapMode
	Masquerade   bool
	IPAM         bool // hands out addresses; absent is true
	Disabled     bool
	BlockSize    int    // prefix length of the pool's blocks; absent is 26 or 122
	NodeSelector string // "" = every node
}

// Free marks a free address in Block.Allocations.
const Free = -1

// Block is a run of addresses, most often with affinity to one host.
type Block struct {
	CIDR           netip.Prefix
	Affinity       string // host name, "" = none
	StrictAffinity bool
	// Allocations has an entry per address: Free, or an index into Attributes.
	Allocations []int
	// Unallocated lists the free ordinals, the next to be handed out first.
	Unallocated []int
	Attributes  []Attributes
	// EmptySince is when the last address was released, zero while any is
	// allocated. Other hosts may reclaim a block that has been empty for a while.
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

// Affinity is the value of AffinityKey: nothing.
type Affinity struct{}

// IPAMConfig steers allocation. The zero value is not the default: see DefaultIPAMConfig.
type IPAMConfig struct {
	StrictAffinity     bool // never borrow from another host's block
	AutoAllocateBlocks bool // hosts may claim new blocks
}

// DefaultIPAMConfig is what holds where nothing is stored.
var DefaultIPAMConfig = IPAMConfig{AutoAllocateBlocks: true}

// Mesh switches the node-to-node BGP mesh.
type Mesh struct{ Enabled bool }

// ASNumber is a BGP autonomous system number, read as decimal or as high.low (RFC 5396).
type ASNumber uint32

// BGPPeer is one explicit BGP neighbour.
type BGPPeer struct {
	IP           netip.Addr
	AS           ASNumber
	PasswordFile string
	EBGPMultihop int // 0 = off
	Import       []RouteFilter
	Export       []RouteFilter
}

// RouteFilter accepts or rejects the routes inside CIDR; the first match decides.
type RouteFilter struct {
	CIDR   netip.Prefix
	Action string // "accept" or "reject"
}

// Status is an agent's report on itself.
type Status struct {
	Time        time.Time
	Uptime      time.Duration // stored in seconds
	FirstUpdate bool
}

// EndpointStatus is an agent's report on an endpoint: "up", "down" or "error".
type EndpointStatus string

const (
	EndpointUp    EndpointStatus = "up"
	EndpointDown  EndpointStatus = "down"
	EndpointError EndpointStatus = "error"
)

// Subnet is what DHCP tells the endpoints of one network.
type Subnet struct {
	NetworkID  string // absent is "calico"
	CIDR       netip.Prefix
	GatewayIP  netip.Addr
	DNSServers []netip.Addr
	HostRoutes []hostRoute
}

// hostRoute is a classless static route (RFC 3442).
type hostRoute struct {
	Destination netip.Prefix
	NextHop     netip.Addr
}
