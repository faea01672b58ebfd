// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Learned is everything that BGP currently knows about a prefix. Without Paths it is gone.
type Learned struct {
	Prefix netip.Prefix
	// Paths are the acceptable paths, best first. The first ones with a reachable next hop are used, all that are
	// equally good (ECMP).
	Paths []Path
}

// Path is one of the paths to a learned prefix.
type Path struct {
	NextHop netip.Addr // a link-local address has the link as its zone
	Peer    netip.Addr // the neighbour that sent it
	// Rank is the number of better paths: 0 for the best, and the same for those that are equally good.
	Rank int
}

// Link is one of the host's own interfaces, neither a workload's nor one of our tunnels.
type Link struct {
	Name string
	Up   bool // administratively
	// NoCarrier says that nothing is connected at the other end, so packets sent through it are lost.
	NoCarrier bool
	MTU       int
	Addrs     []netip.Prefix // each with its subnet
	// Pending are those of Addrs for which the kernel is still checking whether another host has them (duplicate
	// address detection, RFC 4862).
	Pending []netip.Addr
	// Passing are those of Addrs that are deprecated, or temporary IPv6 addresses (RFC 8981): they won't stay for long.
	Passing []netip.Addr
	// Refused are addresses, not in Addrs, that the kernel doesn't use because another host on the link has them.
	Refused []netip.Prefix
	// Uplink says that a default route leads here, or did, or would if there were one.
	Uplink bool
	// Loopback says that it leads nowhere. It may have the host's address all the same.
	Loopback bool
}

// HostRoute is a route of the main table that is not ours. It shows how next hops are reached. Routes for the links'
// own subnets may be left out.
type HostRoute struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid = on the link; an IPv4 route may have an IPv6 gateway
	Device      string
	OnLink      bool // Gateway is a neighbour on Device, whatever the addresses say
	// Next says that this is another next hop of the preceding route.
	Next bool
}

// Links are the host's own links and routes, as the kernel has them.
type Links struct {
	Links  []Link
	Routes []HostRoute
}

// Settings are the agent's settings. The zero value is the default.
type Settings struct {
	VXLANPort uint16 // 0 = 4789
	VXLANVNI  uint32 // 0 = 4096
	// MTU is the uplinks' MTU, 0 = the least of theirs. A value above the greatest of theirs is a largeMTU problem and
	// not used.
	MTU int
	// TunnelMTU is the tunnels' MTU, 0 = derived from the uplinks'. A value above what the greatest of theirs, or MTU
	// if set, leaves is a largeMTU problem and not used.
	TunnelMTU     map[TunnelKind]int
	Listen        []netip.Addr
	ListenPort    uint16        // 0 = 179
	HoldTime      time.Duration // 0 = 90 s
	KeepaliveTime time.Duration // 0 = a third of HoldTime
	// RestartTime is the time for graceful restart: 0 = 120 s, negative = none.
	RestartTime time.Duration
	MaxPrefixes int // 0 = 50000
	Communities []model.Community
	// RouterID is the router ID already in use, invalid = none. It is kept while no other host has that address.
	RouterID netip.Addr
}
