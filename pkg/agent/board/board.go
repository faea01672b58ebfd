// SPDX-License-Identifier: Apache-2.0

// Package board has the values that the agent's reconcilers give one another: none imports another.
package board

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/policy"
)

// Doubts are what the firewall, and the loss of addresses, have made of tracked connections: which may have to end.
type Doubts struct {
	// Lost are addresses that lead nowhere any more, or elsewhere: connections with
	// them are over.
	Lost []netip.Addr
	// Suspects are the addresses whose connections policy may judge otherwise than when
	// they began; with All, everybody's.
	Suspects map[netip.Addr]struct{}
	All      bool
	// Moved are more suspects: of workloads that came or left. Hardly a connection with
	// them isn't over, so there is no hurry.
	Moved map[netip.Addr]struct{}
	// Outer are the inner addresses of new 1:1 NAT, by the outer one.
	Outer map[netip.Addr]netip.Addr
	// Masquerades says that more is masqueraded than before.
	Masquerades bool
	// Hole says that the firewall was not as it should be, or stands for the first
	// time. All are judged, now and after a while.
	Hole bool
}

// Empty says that there is nothing to do.
func (d Doubts) Empty() bool {
	return !d.Urgent() && len(d.Lost) == 0 && len(d.Moved) == 0 && len(d.Outer) == 0 && !d.Masquerades
}

// Urgent says that policy may deny connections that go on.
func (d Doubts) Urgent() bool { return d.All || d.Hole || len(d.Suspects) > 0 }

// Enforced is what the firewall enforces on this host.
type Enforced struct {
	State      *policy.State
	Settings   policy.Settings
	Interfaces []policy.Interface // the host's own
}

// Unready says where it makes the host not ready that workloads' packets are stopped.
type Unready string

// The extents.
const (
	UnreadyAll   Unready = "All" // no workload can send, or be sent anything
	UnreadyAny   Unready = "Any"
	UnreadyNever Unready = "Never"
)

// Families are those of addresses.
type Families struct{ V4, V6 bool }

// ProbeEnd is one of the two workloads that a Prober makes, as the agent is to connect it.
type ProbeEnd struct {
	Interface string // the host's end
	MAC       model.MAC
	Addrs     []netip.Addr
}

// ProbeAddrs are the addresses of an end, 0 or 1, in no pool and the same on every host: each is routed to on its own host alone.
func ProbeAddrs(end int, of Families) (list []netip.Addr) {
	if of.V4 {
		list = append(list, netip.AddrFrom4([4]byte{169, 254, 1, byte(2 + end)}))
	}
	if of.V6 {
		list = append(list, netip.AddrFrom16([16]byte{0xfd, 0xca, 0x11, 0xc0, 15: byte(2 + end)}))
	}
	return list
}

// ProbeWays are those that packets take between the ends, from and to which address.
func ProbeWays() (ways [][2]netip.Addr) {
	one, other := ProbeAddrs(0, Families{true, true}), ProbeAddrs(1, Families{true, true})
	for i := range one {
		ways = append(ways, [2]netip.Addr{one[i], other[i]}, [2]netip.Addr{other[i], one[i]})
	}
	return ways
}

// PathFinding is what is wrong with the path that packets of workloads take.
type PathFinding struct {
	V4   bool // else IPv6
	Text string
}

// HostView is what the router knows of this host.
type HostView struct {
	// Revision is up to which of etcd's all else is known.
	Revision int64
	Links    plan.Links // never changed, only replaced
	Devices  plan.Devices
	// Others are addresses of some other hosts that live, by family.
	Others [2][]netip.Addr
	// Conflict is plan.Planner's, of what was flushed. It is called by who takes the view alone.
	Conflict func(own, said []netip.Addr) error
}
