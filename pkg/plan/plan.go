// SPDX-License-Identifier: Apache-2.0

// Package plan computes what one host needs so that packets reach every workload of the cluster: routes, tunnels, the
// configuration of a BGP speaker, and MTUs.
//
// A Planner does so from the content of etcd, the host's own links and what BGP has learned. It proceeds in steps where
// changing everything at once would lose packets. A State is the sum of all its changes.
package plan

import (
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// RouteKind is what a route does with packets.
type RouteKind string

const (
	Unicast   RouteKind = "unicast"
	Blackhole RouteKind = "blackhole" // no hops
)

// Origin says which subsystem a route comes from.
type Origin string

const (
	// FromBlock is the blackhole of one of this host's blocks: packets for an address without an endpoint must not
	// leave the host again through its default route.
	FromBlock Origin = "block"
	// FromHost leads to another host as etcd says, through a tunnel or not. It is for pools with encapsulation.
	FromHost Origin = "host"
	// FromBGP was learned. It is for pools without encapsulation, and for what a peer's filter accepts.
	FromBGP Origin = "bgp"
)

// Route is one route of the main table. There is at most one per destination. Routes to this host's endpoints are not
// included: see hostpath.Path.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Kind        RouteKind    `json:"kind"`
	// Hops are the next hops, several for ECMP with equal weight; sorted, without duplicates.
	Hops []Hop `json:"hops,omitempty"`
	// Source is the host's own source address; if invalid the kernel chooses. A link had the address at the last
	// SetLinks.
	Source netip.Addr `json:"source,omitzero"`
	Origin Origin     `json:"origin"`
	// Host is the host that the route leads to, "" if unknown.
	Host string `json:"host,omitempty"`
}

// Hop is a next hop.
type Hop struct {
	// Gateway is of the destination's family, or IPv6 if the host itself reaches IPv4 next hops that way. A link-local
	// IPv6 address is on Device.
	Gateway netip.Addr `json:"gateway,omitzero"`
	Device  string     `json:"device,omitempty"`
	// OnLink says that Gateway is a neighbour on Device, regardless of the addresses.
	OnLink bool `json:"onLink,omitempty"`
}

// TunnelKind is a kind of encapsulation. A host has at most one tunnel of each.
type TunnelKind string

const (
	VXLAN4 TunnelKind = "vxlan"
	VXLAN6 TunnelKind = "vxlan-v6"
	IPIP   TunnelKind = "ipip"
)

// Tunnel is a tunnel device of this host.
type Tunnel struct {
	Kind   TunnelKind `json:"kind"`
	Device string     `json:"device,omitempty"`
	// Local is the outer source address, which is this host's own.
	Local netip.Addr `json:"local,omitzero"`
	// Parent is the link that has Local, "" if no link has it.
	Parent string `json:"parent,omitempty"`
	// Addr is the device's own address, a /32 or /128, from which the host sends through the tunnel. If it is invalid,
	// there is none yet: allocate one from one of Pools with Handle and the attribute node = this host, and write it as
	// the host's setting AddrConfig. Routes don't wait for it.
	Addr   netip.Addr `json:"addr,omitzero"`
	Handle string     `json:"handle,omitempty"`
	// Pools are sorted. If there are none, no address can be allocated now. A pool that contains addresses of hosts, or
	// of what they depend on, is left out.
	Pools      []netip.Prefix `json:"pools,omitempty"`
	AddrConfig string         `json:"addrConfig,omitempty"`
	MTU        int            `json:"mtu,omitempty"` // bytes, 0 = unknown
	// MAC, VNI and Port are for VXLAN. Learning and UDP checksums are left to the code that makes the device: no
	// learning, and checksums only if IPv6 requires them.
	MAC  model.MAC `json:"mac,omitzero"`
	VNI  uint32    `json:"vni,omitempty"`
	Port uint16    `json:"port,omitempty"`
}

// RemoteID names a Remote.
type RemoteID struct {
	Tunnel TunnelKind `json:"tunnel"`
	Outer  netip.Addr `json:"outer,omitzero"`
}

// Remote is another host as a VXLAN device must know it:
//
//	neigh  Gateway lladdr MAC dev <device> nud permanent
//	fdb    MAC dev <device> dst Outer self permanent
//
// IPIP needs none: its routes name the outer address.
type Remote struct {
	RemoteID
	Host    string     `json:"host,omitempty"`
	Gateway netip.Addr `json:"gateway,omitzero"` // for routes: Outer, or for IPv6 the link-local address of MAC
	MAC     model.MAC  `json:"mac,omitzero"`
}

// mtu is in bytes. 0 means unknown: there is no uplink.
type mtu struct {
	Uplink int `json:"uplink,omitempty"` // the smallest of the uplinks
	Pods   int `json:"pods,omitempty"`   // what the encapsulations in use leave of it; written to a file for the plugins
}

// Speaker is how this host speaks BGP, except for neighbours and advertisements.
type Speaker struct {
	// AS is 0 if the host must not speak because it has no address. Then it has no neighbours.
	AS model.ASNumber `json:"as"`
	// RouterID has the form of an IPv4 address: the host's if it has one, unless the Settings have one in use.
	RouterID netip.Addr `json:"routerID,omitzero"`
	// Listen are the addresses to listen on; empty = all.
	Listen     []netip.Addr `json:"listen,omitempty"`
	ListenPort uint16       `json:"listenPort,omitempty"`
	// HoldTime and KeepaliveTime are those of RFC 4271. RestartTime is that of RFC 4724: the time for which neighbours
	// keep our routes while we restart, and we theirs. 0 = no graceful restart.
	HoldTime      time.Duration `json:"holdTime"`
	KeepaliveTime time.Duration `json:"keepaliveTime"`
	RestartTime   time.Duration `json:"restartTime"`
	// ClusterID makes the host a route reflector (RFC 4456), which passes on learned routes with the next hop
	// unchanged. If it is invalid, the host is none and sends neighbours only its own advertisements.
	ClusterID netip.Addr `json:"clusterID,omitzero"`
	// Import are the prefixes in which routes are accepted from every neighbour: the pools without encapsulation of
	// both families, sorted, none inside another. Neighbour.Import takes precedence; what neither names is refused.
	Import []netip.Prefix `json:"import,omitempty"`
	// Communities are attached to what the host advertises itself.
	Communities []model.Community `json:"communities,omitempty"`
}

// NeighbourKind says why there is a neighbour.
type NeighbourKind string

const (
	FromMesh     NeighbourKind = "mesh"      // another host, in the node-to-node mesh
	FromGlobal   NeighbourKind = "global"    // a peer of all hosts
	FromOwn      NeighbourKind = "own"       // a peer of this host
	FromReflects NeighbourKind = "reflector" // another host that has us, a reflector, as its peer
	FromBack     NeighbourKind = "reverse"   // another host that has us as its peer, by a selector
)

// Neighbour is one BGP session. It carries only the family of its address.
type Neighbour struct {
	Address netip.Addr     `json:"address,omitzero"`
	AS      model.ASNumber `json:"as"`
	// Local is the address to speak from, of the same family.
	Local netip.Addr    `json:"local,omitzero"`
	Kind  NeighbourKind `json:"kind"`
	Host  string        `json:"host,omitempty"` // the host that it is, "" = none of ours
	// PasswordFile has the TCP MD5 password (RFC 2385), "" = none.
	PasswordFile string `json:"passwordFile,omitempty"`
	// Multihop is the TTL of an eBGP session over several hops, 0 = one hop. iBGP sessions may take any number.
	Multihop int `json:"multihop,omitempty"`
	// Options are those of the peer in etcd.
	Options model.PeerOptions `json:"options,omitzero"`
	// Client says that we reflect to it (RFC 4456).
	Client bool `json:"client,omitempty"`
	// Reflector says that it is a reflector like us: routes of our clients and of its clients pass in both directions,
	// and nothing else that came by iBGP.
	Reflector bool `json:"reflector,omitempty"`
	// Import decides first about routes that it sends: the first filter that matches counts, and if none does,
	// Speaker.Import. Export decides about routes sent to it; one that matches none of its filters is sent.
	Import []model.RouteFilter `json:"import,omitempty"`
	Export []model.RouteFilter `json:"export,omitempty"`
	// MaxPrefixes limits how many routes it may send, accepted or not, because they cost memory. If it sends more, it
	// is faulty, and the other neighbours must not suffer.
	MaxPrefixes int `json:"maxPrefixes,omitempty"`
}

// Advertisement is a prefix of ours. The next hop for all neighbours is this host.
type Advertisement struct {
	Prefix  netip.Prefix `json:"prefix"`
	NextHop netip.Addr   `json:"nextHop,omitzero"` // this host's address of the family
	// NoMesh excludes neighbours of kind FromMesh, because the pool has an encapsulation and they go by etcd.
	NoMesh bool `json:"noMesh,omitempty"`
}

// ProblemKind is a word for metrics and logs.
type ProblemKind string

const (
	// BadValue is a key with an unreadable or impossible value.
	BadValue ProblemKind = "bad-value"
	// sameAddress is a host with the address of another host.
	sameAddress ProblemKind = "same-address"
	// sameEndpointAddress is an address of active endpoints on several hosts.
	sameEndpointAddress ProblemKind = "same-endpoint-address"
	// noHostAddress is a host that holds blocks of a family but has no address of it.
	noHostAddress ProblemKind = "no-host-address"
	// deadHost is a host with workloads in a pool with encapsulation whose agent no longer reports.
	deadHost ProblemKind = "dead-host"
	// poolOverlap is a pool that overlaps an older one, or a subnet of this host's links.
	poolOverlap ProblemKind = "pool-overlap"
	// HostInBlock is a block that contains a host's own address or subnet, or the address of etcd or of a BGP
	// neighbour. The block is not routed.
	HostInBlock ProblemKind = "host-in-block"
	// noPool is a block outside every pool.
	noPool ProblemKind = "no-pool"
	// noNeighbour is a family in which only BGP could bring routes to other hosts' blocks, while this host has no
	// neighbour.
	noNeighbour ProblemKind = "no-neighbour"
	// selfPeer is a peer of this host that is this host itself.
	selfPeer ProblemKind = "self-peer"
	// samePeer is a peer that leads to the same address as another one, which is used.
	samePeer ProblemKind = "same-peer"
	// noFilter is a peer with a BGP filter that doesn't exist.
	noFilter ProblemKind = "no-filter"
	// noNextHop is a next hop without a route, or one that is a broadcast address.
	noNextHop ProblemKind = "no-next-hop"
	// refusedRoute is a learned route that must not be taken.
	refusedRoute ProblemKind = "refused-route"
	// foreignRoute is another program's route to a destination for which we have a route from etcd.
	foreignRoute ProblemKind = "foreign-route"
	// smallMTU is an MTU that is too small for IPv6.
	smallMTU ProblemKind = "small-mtu"
	// largeMTU is a configured MTU that is larger than any link to other hosts, or than the configured MTU of the
	// uplinks, allows.
	largeMTU ProblemKind = "large-mtu"
)

// ProblemKinds returns all kinds of problems.
func ProblemKinds() []ProblemKind {
	return []ProblemKind{
		BadValue, sameAddress, sameEndpointAddress, noHostAddress, deadHost, poolOverlap, HostInBlock, noPool,
		noNeighbour, selfPeer, samePeer, noFilter, noNextHop, refusedRoute, foreignRoute, smallMTU, largeMTU,
	}
}

// ProblemID identifies a Problem. There is at most one per kind and subject.
type ProblemID struct {
	Kind ProblemKind `json:"kind"`
	// Subject is the path of the key to correct, or else the address, prefix or link concerned.
	Subject string `json:"subject,omitempty"`
}

// Problem is something that is wrong, with its consequences.
type Problem struct {
	ProblemID
	Reason string `json:"reason,omitempty"` // says what to do
}

// State is the sum of all Changes so far. The zero value is empty.
type State struct {
	Routes  map[netip.Prefix]Route `json:"routes"`
	Tunnels []Tunnel               `json:"tunnels"` // by kind
	// Releases are handles of tunnels' own addresses that are held but not needed.
	Releases []string            `json:"releases"`
	Remotes  map[RemoteID]Remote `json:"-"`
	// Hosts maps the addresses of all other hosts to their names. Tunnel packets are accepted from these addresses
	// only.
	Hosts map[netip.Addr]string `json:"hosts"`
	// MTU is written to a file for the plugins, and applied.
	MTU            mtu                            `json:"mtu"`
	Speaker        Speaker                        `json:"speaker"`
	Neighbours     map[netip.Addr]Neighbour       `json:"neighbours"`
	Advertisements map[netip.Prefix]Advertisement `json:"advertisements"`
	Problems       map[ProblemID]Problem          `json:"-"`
}

// Changes are the differences found by compute. In maps, nil or "" means gone.
type Changes struct {
	Routes         map[netip.Prefix]*Route
	Devices        *Devices // nil = unchanged
	Remotes        map[RemoteID]*Remote
	Hosts          map[netip.Addr]string
	MTU            *mtu
	Speaker        *Speaker
	Neighbours     map[netip.Addr]*Neighbour
	Advertisements map[netip.Prefix]*Advertisement
	Problems       map[ProblemID]*Problem
}

// Devices are the tunnels, always the complete list.
type Devices struct {
	Tunnels  []Tunnel
	Releases []string // sorted
}
