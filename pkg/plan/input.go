// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Learned is all that BGP knows of a prefix now; without Paths it is gone.
type Learned struct {
	Prefix netip.Prefix
	// Paths are those that may be taken, the best first. Of these the first are used whose
	// next hop can be reached, all that are equally good (ECMP).
	Paths []Path
}

// Path is one of the paths to a learned prefix.
type Path struct {
	NextHop netip.Addr // a link-local one has the link as its zone
	Peer    netip.Addr // the neighbour that sent it
	// Rank is how many paths are better: 0 of the best, and the same of those that are
	// equally good.
	Rank int
}

// Link is one of the host's own interfaces: no workload's, no tunnel of ours.
type Link struct {
	Name string
	Up   bool // administratively
	// NoCarrier: what is sent by it is lost, as nothing is at its other end.
	NoCarrier bool
	MTU       int
	Addrs     []netip.Prefix // each with its subnet
	// Pending are those of Addrs of which the kernel doesn't know yet whether another
	// host has them (duplicate address detection, RFC 4862).
	Pending []netip.Addr
	// Passing are those of Addrs that are deprecated, or of IPv6 and temporary (RFC
	// 8981): they aren't there for long.
	Passing []netip.Addr
	// Refused aren't among Addrs, as the kernel doesn't use them: another host on the
	// link has them.
	Refused []netip.Prefix
	// Uplink: a default route leads here, or did, or would if there were one.
	Uplink bool
	// Loopback: it leads nowhere, and may have the host's address all the same.
	Loopback bool
}

// HostRoute is a route of the main table that is not ours: it says how next hops are
// reached. Those of the links' own subnets may be left out.
type HostRoute struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid = on the link; IPv4 may go by one of IPv6
	Device      string
	OnLink      bool // Gateway is a neighbour on Device, whatever the addresses say
	// Next: it is one more next hop of the route before it.
	Next bool
}

// Links are the host's own part in the network, as the kernel has it.
type Links struct {
	Links  []Link
	Routes []HostRoute
}

// Settings of the agent; the zero value is the default.
type Settings struct {
	VXLANPort uint16 // 0 = 4789
	VXLANVNI  uint32 // 0 = 4096
	// MTU is that of the uplinks, 0 = the least of theirs. More
	// than the greatest of theirs is a largeMTU, and not used.
	MTU int
	// TunnelMTU is that of tunnels, 0 = what follows from the uplinks'. More
	// than the greatest of theirs leaves, or MTU where it is set, is a largeMTU, and not used.
	TunnelMTU     map[TunnelKind]int
	Listen        []netip.Addr
	ListenPort    uint16        // 0 = 179
	HoldTime      time.Duration // 0 = 90 s
	KeepaliveTime time.Duration // 0 = a third of HoldTime
	// RestartTime is that of graceful restart: 0 = 120 s, negative = none.
	RestartTime time.Duration
	MaxPrefixes int // 0 = 50000
	Communities []model.Community
	// RouterID is the one by which BGP speaks already, invalid = none. It stays while no
	// other host has that address.
	RouterID netip.Addr
}
