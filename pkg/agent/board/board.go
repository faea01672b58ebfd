// SPDX-License-Identifier: Apache-2.0

// Package board defines the values that the agent's reconcilers exchange, so that none imports another.
package board

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/policy"
)

// Doubts say which tracked connections may have to end after a change of the firewall or the loss of addresses.
type Doubts struct {
	// Lost are addresses that lead nowhere, or elsewhere, now: connections with them are over.
	Lost []netip.Addr
	// Suspects are the addresses whose connections policy may judge differently than when they began; with All, every address.
	Suspects map[netip.Addr]struct{}
	All      bool
	// Moved are more suspects: addresses of workloads that came or left. Almost all of their connections are over, so there is no hurry.
	Moved map[netip.Addr]struct{}
	// Outer maps the outer addresses of new 1:1 NAT to the inner ones.
	Outer map[netip.Addr]netip.Addr
	// Masquerades: more is masqueraded than before.
	Masquerades bool
	// Hole: the firewall was not as it should be, or was applied for the first time. All connections are judged, now and after a while.
	Hole bool
}

// Empty reports whether there is nothing to do.
func (d Doubts) Empty() bool {
	return !d.Urgent() && len(d.Lost) == 0 && len(d.Moved) == 0 && len(d.Outer) == 0 && !d.Masquerades
}

// Urgent reports whether policy may deny connections that go on.
func (d Doubts) Urgent() bool { return d.All || d.Hole || len(d.Suspects) > 0 }

// Enforced is what the firewall enforces on this host.
type Enforced struct {
	State      *policy.State
	Settings   policy.Settings
	Interfaces []policy.Interface // the host's own
}

// Unready says when stopped packets of workloads make the host not ready.
type Unready string

// The values of Unready.
const (
	UnreadyAll   Unready = "All" // no workload can send or receive
	UnreadyAny   Unready = "Any"
	UnreadyNever Unready = "Never"
)

// Families are address families.
type Families struct{ V4, V6 bool }

// ProbeEnd is one of the two workloads that a Prober creates, as the agent must connect it.
type ProbeEnd struct {
	Interface string // the host's end
	MAC       model.MAC
	Addrs     []netip.Addr
}

// ProbeAddrs returns the addresses of an end, 0 or 1. They are in no pool and the same on every host, and only that host has routes to
// them.
func ProbeAddrs(end int, of Families) (list []netip.Addr) {
	if of.V4 {
		list = append(list, netip.AddrFrom4([4]byte{169, 254, 1, byte(2 + end)}))
	}
	if of.V6 {
		list = append(list, netip.AddrFrom16([16]byte{0xfd, 0xca, 0x11, 0xc0, 15: byte(2 + end)}))
	}
	return list
}

// ProbeWays returns the source and destination of each way that packets take between the ends.
func ProbeWays() (ways [][2]netip.Addr) {
	one, other := ProbeAddrs(0, Families{true, true}), ProbeAddrs(1, Families{true, true})
	for i := range one {
		ways = append(ways, [2]netip.Addr{one[i], other[i]}, [2]netip.Addr{other[i], one[i]})
	}
	return ways
}

// PathFinding is a problem with the path of workloads' packets.
type PathFinding struct {
	V4   bool // else IPv6
	Text string
}

// HostView is what the router knows of this host.
type HostView struct {
	// Revision is etcd's, as of which all else is known.
	Revision int64
	Links    plan.Links // replaced, never modified
	Devices  plan.Devices
	// Others are addresses of some other live hosts, by family.
	Others [2][]netip.Addr
	// Conflict is plan.Planner.Conflict of the flushed plan. Only the receiver of the view calls it.
	Conflict func(own, said []netip.Addr) error
}
