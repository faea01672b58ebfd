// SPDX-License-Identifier: Apache-2.0

// Package ipam decides which addresses workloads get: from what etcd holds
// and a request to the change that etcd must take whole or not at all.
//
// It is pure: no clock, no randomness, no I/O. The caller reads what FirstRead
// says, puts it into a View and asks a Plan over it. Where the plan must see
// more it returns a *NeedError with the ranges to read next; the caller adds
// them to the view and asks again. An assignment needs one such round in the
// normal case. Plan.Change is then committed; if a compare fails, somebody was
// faster and everything starts again with a new view.
//
//	view := ipam.NewView()
//	wants := ipam.FirstRead(request)
//	for {
//		for each w of wants whose condition holds: view.Add(w, their revision, entries of w)
//		choice, err := ipam.NewPlan(view).Assign(request)
//		if need, ok := errors.AsType[*ipam.NeedError](err); ok {
//			wants = need.Wants
//			continue
//		}
//		…
//	}
//
// Reads of one view must not go back in time: each round is read at the
// revision of the round before or a later one. Where a round is several
// requests, none may be of an earlier revision than that at which the pools were written last.
package ipam

import (
	"net/netip"
	"time"
)

// EmptyBeforeReclaim is how long a block must have been empty before a host
// other than its own takes it over.
const EmptyBeforeReclaim = time.Minute

// Request asks for addresses for one handle.
type Request struct {
	// Host is the node that the addresses will live on.
	Host string
	// HostLabels are what pools' node selectors are matched against; nil:
	// those of the host's metadata in the view.
	HostLabels map[string]string
	// Handle owns the addresses. If it owns suitable ones already, the
	// request is satisfied with those.
	Handle string
	// Attributes are kept with each address, for people to read.
	Attributes map[string]string
	// IPv4 and IPv6 ask for an address of that family: of both or of none.
	IPv4, IPv6 bool
	// Pools4 and Pools6 are the only pools to take from; none: any eligible one.
	Pools4, Pools6 []netip.Prefix
	// Addrs are the very addresses wanted. Of a family that is in Addrs no
	// other address is chosen.
	Addrs []netip.Addr
	// Reserve: they are no workload's, so it doesn't matter whose their blocks are.
	Reserve bool
	// Now is compared with the time since when a block has been empty.
	Now time.Time
}

// Choice is what a request got.
type Choice struct {
	// Addrs are IPv4 first; wanted addresses of a family keep their order.
	Addrs []Assigned
}

// Assigned is an address of a handle.
type Assigned struct {
	Addr netip.Addr
	// Pool is the zero Prefix where the block's pool was deleted.
	Pool, Block netip.Prefix
	// Existing: the handle had it before.
	Existing bool
	// Attributes are what is kept beside it, see Request.
	Attributes map[string]string
}

func (r Request) requested(v6 bool) []netip.Prefix {
	if v6 {
		return r.Pools6
	}
	return r.Pools4
}

func isV6(p netip.Prefix) bool { return p.Addr().Is6() }

func familyName(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}
