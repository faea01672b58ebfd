// SPDX-License-Identifier: Apache-2.0

// Package plan works out what one host needs so that packets reach every
// workload of the cluster: routes, tunnels, a BGP speaker's configuration, MTU.
//
// A Planner does so from what etcd holds, the host's own links and what BGP has learned, and
// goes step by step where a jump would lose packets. A State is all of its changes together.
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
	// FromBlock is the blackhole of a block of this host: what no endpoint has
	// must not leave the host again by its default route.
	FromBlock Origin = "block"
	// FromHost leads to another host by what etcd says, through a tunnel or not:
	// routes of pools with an encapsulation.
	FromHost Origin = "host"
	// FromBGP was learned: routes of pools without encapsulation, and what a
	// peer's filter lets in.
	FromBGP Origin = "bgp"
)

// Route is one route of the main table. There is at most one to a destination.
// Routes to the endpoints of this host are not among them: they are
// hostpath.Path's.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Kind        RouteKind    `json:"kind"`
	// Hops are the next hops, several for ECMP of equal weight; sorted, each once.
	Hops []Hop `json:"hops,omitempty"`
	// Source is the address that the host itself sends from; invalid = the kernel
	// chooses. It is an address that a link had by the last SetLinks.
	Source netip.Addr `json:"source,omitzero"`
	Origin Origin     `json:"origin"`
	// Host is the one it leads to, "" where that isn't known.
	Host string `json:"host,omitempty"`
}

// Hop is a next hop.
type Hop struct {
	// Gateway is of the destination's family, or of IPv6 where the host itself reaches
	// IPv4's next hops that way. An IPv6 link-local one is meant on Device.
	Gateway netip.Addr `json:"gateway,omitzero"`
	Device  string     `json:"device,omitempty"`
	// OnLink: Gateway is a neighbour on Device, whatever the addresses say.
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
	// Local is the outer source address, this host's own.
	Local netip.Addr `json:"local,omitzero"`
	// Parent is the link that has Local, "" where no link has it.
	Parent string `json:"parent,omitempty"`
	// Addr is the device's own address, a /32 or /128: what the host sends from
	// through the tunnel. Invalid = it has none yet: one is to be allocated from
	// one of Pools by Handle, with the attribute node = this host, and written as
	// the host's setting AddrConfig. Routes don't wait for it.
	Addr   netip.Addr `json:"addr,omitzero"`
	Handle string     `json:"handle,omitempty"`
	// Pools are sorted; where there is none, no address is to be had now. One in which hosts,
	// or what they can't do without, have addresses is none of them.
	Pools      []netip.Prefix `json:"pools,omitempty"`
	AddrConfig string         `json:"addrConfig,omitempty"`
	MTU        int            `json:"mtu,omitempty"` // bytes, 0 = not known
	// MAC, VNI and Port are VXLAN's. Learning and the UDP checksums' defaults are
	// the edge's: no learning, checksums only where IPv6 wants them.
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
	Gateway netip.Addr `json:"gateway,omitzero"` // that routes name: Outer, for IPv6 the link-local one of MAC
	MAC     model.MAC  `json:"mac,omitzero"`
}

// mtu is in bytes, 0 = not known: there is no uplink.
type mtu struct {
	Uplink int `json:"uplink,omitempty"` // the smallest of the uplinks
	Pods   int `json:"pods,omitempty"`   // what is left of it by the encapsulations in use; to be written for the plugins
}

// Speaker is how this host speaks BGP, but for neighbours and advertisements.
type Speaker struct {
	// AS is 0 where the host must not speak, as it has no address. Then it has no
	// neighbours.
	AS model.ASNumber `json:"as"`
	// RouterID is an IPv4 address in form: the host's if it has one, but that in the
	// Settings stays.
	RouterID netip.Addr `json:"routerID,omitzero"`
	// Listen are the addresses to listen at; empty = all.
	Listen     []netip.Addr `json:"listen,omitempty"`
	ListenPort uint16       `json:"listenPort,omitempty"`
	// HoldTime and KeepaliveTime are RFC 4271's, RestartTime RFC 4724's: for so
	// long neighbours keep our routes while we restart, and we theirs. 0 = no
	// graceful restart.
	HoldTime      time.Duration `json:"holdTime"`
	KeepaliveTime time.Duration `json:"keepaliveTime"`
	RestartTime   time.Duration `json:"restartTime"`
	// ClusterID makes the host a route reflector (RFC 4456): it passes learned
	// routes on, next hop unchanged. Invalid = it is none, and sends no
	// neighbour anything but its own advertisements.
	ClusterID netip.Addr `json:"clusterID,omitzero"`
	// Import are the prefixes inside which routes are taken from every
	// neighbour: the pools without encapsulation, both families; sorted, none
	// inside another. Neighbour.Import comes first; what neither names is refused.
	Import []netip.Prefix `json:"import,omitempty"`
	// Communities are those of what the host advertises itself.
	Communities []model.Community `json:"communities,omitempty"`
}

// NeighbourKind says why there is a neighbour.
type NeighbourKind string

const (
	FromMesh     NeighbourKind = "mesh"      // another host, in the node-to-node mesh
	FromGlobal   NeighbourKind = "global"    // a peer of all hosts
	FromOwn      NeighbourKind = "own"       // a peer of this host
	FromReflects NeighbourKind = "reflector" // another host that has us, a reflector, for its peer
)

// Neighbour is one BGP session. The family of its address is the only one that
// it carries.
type Neighbour struct {
	Address netip.Addr     `json:"address,omitzero"`
	AS      model.ASNumber `json:"as"`
	// Local is the address to speak from, of the same family.
	Local netip.Addr    `json:"local,omitzero"`
	Kind  NeighbourKind `json:"kind"`
	Host  string        `json:"host,omitempty"` // that it is, "" = no host of ours
	// PasswordFile holds the TCP MD5 password (RFC 2385), "" = none.
	PasswordFile string `json:"passwordFile,omitempty"`
	// Multihop is the TTL of an eBGP session over several hops, 0 = one hop.
	// Sessions of iBGP may take any number.
	Multihop int `json:"multihop,omitempty"`
	// Options are those of its peer in etcd.
	Options model.PeerOptions `json:"options,omitzero"`
	// Client: we reflect to it (RFC 4456).
	Client bool `json:"client,omitempty"`
	// Reflector: it reflects as we do, so what our clients and its own say goes in both directions, and
	// nothing else that came by iBGP.
	Reflector bool `json:"reflector,omitempty"`
	// Import decides first about what it sends: the first filter that has the
	// prefix inside. If none does: Speaker.Import. Export decides about what it is
	// sent; what none has inside is sent.
	Import []model.RouteFilter `json:"import,omitempty"`
	Export []model.RouteFilter `json:"export,omitempty"`
	// MaxPrefixes is how many routes it may send, taken or not: that is what costs
	// memory. More are a fault of that neighbour, and none of the others may suffer.
	MaxPrefixes int `json:"maxPrefixes,omitempty"`
}

// Advertisement is a prefix of ours. To every neighbour we originate the next
// hop is ourselves.
type Advertisement struct {
	Prefix  netip.Prefix `json:"prefix"`
	NextHop netip.Addr   `json:"nextHop,omitzero"` // this host's address of the family
	// NoMesh: not to neighbours of kind FromMesh, which go by etcd: the pool has
	// an encapsulation.
	NoMesh bool `json:"noMesh,omitempty"`
}

// ProblemKind is a word for metrics and logs.
type ProblemKind string

const (
	// BadValue is a key whose value cannot be read, or says what cannot be.
	BadValue ProblemKind = "bad-value"
	// sameAddress is a host that has the address of another.
	sameAddress ProblemKind = "same-address"
	// sameEndpointAddress is an address that active endpoints of several hosts have.
	sameEndpointAddress ProblemKind = "same-endpoint-address"
	// noHostAddress is a host that holds blocks of a family and has no address of it.
	noHostAddress ProblemKind = "no-host-address"
	// deadHost is a host whose workloads are in a pool with an encapsulation, and whose agent
	// no longer reports.
	deadHost ProblemKind = "dead-host"
	// poolOverlap is a pool that overlaps an older one, or a subnet of this host's links.
	poolOverlap ProblemKind = "pool-overlap"
	// HostInBlock is a block in which a host's own address, or its subnet, lies, or
	// the address of etcd or of a BGP neighbour: the block is not routed.
	HostInBlock ProblemKind = "host-in-block"
	// noPool is a block outside every pool.
	noPool ProblemKind = "no-pool"
	// noNeighbour is a family in which only BGP could bring routes to other hosts' blocks,
	// and this host has no neighbour.
	noNeighbour ProblemKind = "no-neighbour"
	// selfPeer is a peer of this host that is this host.
	selfPeer ProblemKind = "self-peer"
	// noNextHop is a next hop to which the host has no route, or which is a broadcast address.
	noNextHop ProblemKind = "no-next-hop"
	// refusedRoute is a learned route that must not be taken.
	refusedRoute ProblemKind = "refused-route"
	// foreignRoute is one of another program to what a route of ours leads to by etcd.
	foreignRoute ProblemKind = "foreign-route"
	// smallMTU is one that leaves too little for IPv6.
	smallMTU ProblemKind = "small-mtu"
	// largeMTU is one that is set and that no link to other hosts takes, or that of the uplinks
	// that is set has no room for.
	largeMTU ProblemKind = "large-mtu"
)

// ProblemKinds are all kinds that there are.
func ProblemKinds() []ProblemKind {
	return []ProblemKind{
		BadValue, sameAddress, sameEndpointAddress, noHostAddress, deadHost, poolOverlap, HostInBlock, noPool,
		noNeighbour, selfPeer, noNextHop, refusedRoute, foreignRoute, smallMTU, largeMTU,
	}
}

// ProblemID names a Problem. There is one of a kind for a subject.
type ProblemID struct {
	Kind ProblemKind `json:"kind"`
	// Subject is the path of the key that is to be corrected, or what else it is
	// about: an address, a prefix, a link.
	Subject string `json:"subject,omitempty"`
}

// Problem is something that is wrong, and what comes of it.
type Problem struct {
	ProblemID
	Reason string `json:"reason,omitempty"` // says what to do
}

// State is all Changes so far in one. The zero value is empty.
type State struct {
	Routes  map[netip.Prefix]Route `json:"routes"`
	Tunnels []Tunnel               `json:"tunnels"` // by kind
	// Releases are handles of tunnels' own addresses that are held and not wanted.
	Releases []string            `json:"releases"`
	Remotes  map[RemoteID]Remote `json:"-"`
	// Hosts are the addresses of all other hosts, and their names: from these
	// alone the packets of tunnels are accepted.
	Hosts map[netip.Addr]string `json:"hosts"`
	// mtu is to be written for the plugins, and applied.
	MTU            mtu                            `json:"mtu"`
	Speaker        Speaker                        `json:"speaker"`
	Neighbours     map[netip.Addr]Neighbour       `json:"neighbours"`
	Advertisements map[netip.Prefix]Advertisement `json:"advertisements"`
	Problems       map[ProblemID]Problem          `json:"-"`
}

// Changes are what a Flush found different. In maps, nil or "" is gone.
type Changes struct {
	Routes         map[netip.Prefix]*Route
	Devices        *Devices // nil = as before
	Remotes        map[RemoteID]*Remote
	Hosts          map[netip.Addr]string
	MTU            *mtu
	Speaker        *Speaker
	Neighbours     map[netip.Addr]*Neighbour
	Advertisements map[netip.Prefix]*Advertisement
	Problems       map[ProblemID]*Problem
}

// Devices are the tunnels, always all of them.
type Devices struct {
	Tunnels  []Tunnel
	Releases []string // sorted
}
