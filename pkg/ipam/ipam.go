// SPDX-License-Identifier: Apache-2.0

// Package ipam decides which addresses workloads get: from what etcd holds
// and a request to the change that etcd must take whole or not at all.
//
// It is pure: no clock, no randomness, no I/O. The caller reads what FirstRead
// names into a model.View and asks a Plan over it. Where the plan must see more
// it returns a *model.NeedRangesError with the ranges to read next; the caller
// adds them to the view and asks a new plan. An assignment needs one such round
// in the normal case. Plan.Change is then committed; if a compare fails, another
// writer was faster and everything starts again with a new view. store.Transact
// does all of this:
//
//	store.Transact(ctx, ipam.FirstRead(request), func(v *model.View) (model.Change, error) {
//		plan := ipam.NewPlan(v)
//		choice, err := plan.Assign(request)
//		…
//		return plan.Change(), err
//	})
package ipam

import (
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
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
	// Pools4 and Pools6 are the only pools to take from, those whose node selector picks the host before others; none: any
	// whose node selector does.
	Pools4, Pools6 []model.PoolRef
	// Picked: also of Pools4 and Pools6 only those whose node selector picks the host.
	Picked bool
	// Addrs are the very addresses wanted. Of a family that is in Addrs no
	// other address is chosen.
	Addrs []netip.Addr
	// Endpoint is the one that the addresses are for: what it has already may be given to it.
	Endpoint model.Key
	// Tunnel: they are for a tunnel of the host's, and not for a workload.
	Tunnel bool
	// Reserve: they are no workload's, so it doesn't matter whose their blocks are.
	Reserve bool
	// Living: the addresses wanted are in use by the handle's owner already, whatever pools and blocks say of the host now.
	Living bool
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

// FirstRead is what Assign must see first.
func FirstRead(r Request) []model.Range {
	ranges := append(FirstReadRelease(r.Handle),
		model.Range{Prefix: model.AffinityPrefix(r.Host), KeysOnly: true},
		model.KeyRange(model.HostMetadataKey{Host: r.Host}))
	for _, a := range r.Addrs[:min(len(r.Addrs), 4)] { // of the others they are read in the next round
		ranges = append(ranges, holdingRanges(a)...)
	}
	return ranges
}

// FirstReadRelease is what Release must see first.
func FirstReadRelease(handle string) []model.Range {
	return append(handleRanges(handle), model.KeyRange(model.IPAMConfigKey{}), model.PrefixRange(model.PoolPrefix()))
}

// FirstReadGiveBack is what GiveBack must see first.
func FirstReadGiveBack(block netip.Prefix) []model.Range {
	return []model.Range{
		model.KeyRange(model.IPAMConfigKey{}), model.PrefixRange(model.PoolPrefix()), model.KeyRange(model.BlockKey{CIDR: block}),
	}
}

func handleRanges(handle string) []model.Range {
	return []model.Range{
		model.KeyRange(model.HandleKey{ID: handle}), model.KeyRange(model.HandleKey{ID: handle, Legacy: true}),
	}
}

// holdingRanges are the blocks, of any size, that may have the address.
func holdingRanges(a netip.Addr) (ranges []model.Range) {
	a = a.Unmap()
	for l := largestBlock(a.Is6()); a.IsValid() && l <= a.BitLen(); l++ {
		ranges = append(ranges, model.KeyRange(model.BlockKey{CIDR: netip.PrefixFrom(a, l).Masked()}))
	}
	return ranges
}

func (r Request) requested(v6 bool) []model.PoolRef {
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
