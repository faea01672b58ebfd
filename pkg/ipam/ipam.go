// SPDX-License-Identifier: Apache-2.0

// Package ipam decides which addresses workloads get: it turns the content of etcd and a request into a change that
// etcd must apply as a whole or not at all.
//
// It is pure: no clock, no randomness, no I/O. The caller reads the ranges of FirstRead into a model.View and asks a
// Plan over it. If the plan must see more, it returns a *model.NeedRangesError with the ranges to read next; the caller
// adds them to the view and asks a new plan. An assignment normally needs one such round. The caller then commits
// Plan.Change; if a compare fails, another writer was faster and everything starts again with a new view.
// store.Transact does all of this:
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
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// EmptyBeforeReclaim is how long a block must have been empty before another host takes it over.
const EmptyBeforeReclaim = time.Minute

// Request asks for addresses for one handle.
type Request struct {
	// Host is the node that uses the addresses.
	Host string
	// HostLabels are matched against the pools' node selectors. If nil, the labels in the host's metadata in the view
	// are used.
	HostLabels map[string]string
	// Namespace is the pod's, in Kubernetes, or AnyNamespace; "" for other workloads. Its labels, in its profile in the
	// view, are matched against the pools' namespace selectors.
	Namespace string
	// Handle owns the addresses. If it owns suitable ones already, the request is satisfied with those.
	Handle string
	// Attributes are stored with each address, for people to read.
	Attributes map[string]string
	// IPv4 and IPv6 ask for an address of that family: if both are set, for both or none.
	IPv4, IPv6 bool
	// Pools4 and Pools6 are the only pools to assign from; those whose node selector matches the host are tried first.
	// If empty, all pools whose node selector matches are used.
	Pools4, Pools6 []model.PoolRef
	// Picked restricts Pools4 and Pools6, too, to pools whose node selector matches the host.
	Picked bool
	// Addrs are specific addresses to assign. If they include a family, no other address of that family is chosen.
	Addrs []netip.Addr
	// Endpoint is the endpoint that the addresses are for; it may be assigned addresses that it already has.
	Endpoint model.Key
	// Tunnel says that the addresses are for a tunnel of the host instead of a workload.
	Tunnel bool
	// Reserve says that no workload gets the addresses, so the affinity of their blocks doesn't matter.
	Reserve bool
	// Living says that the handle's owner already uses the addresses, whatever pools and blocks now say about the host.
	Living bool
	// Now is the current time. It is compared with the time since when a block has been empty.
	Now time.Time
}

// AnyNamespace is the namespace of a request for a pod of whichever namespace: any pool may serve one, at least if
// the pod asks for it.
const AnyNamespace = "*"

// Choice is the result of a request.
type Choice struct {
	// Addrs has IPv4 addresses first; requested addresses of a family keep their order.
	Addrs []Assigned
}

// Assigned is an address of a handle.
type Assigned struct {
	Addr netip.Addr
	// Pool is the zero Prefix if the block's pool was deleted.
	Pool, Block netip.Prefix
	// Existing reports that the handle had the address before.
	Existing bool
	// Attributes are those stored with the address, see Request.
	Attributes map[string]string
}

// FirstRead returns the ranges that Assign must see first.
func FirstRead(r Request) []model.Range {
	ranges := append(FirstReadRelease(r.Handle),
		model.Range{Prefix: model.AffinityPrefix(r.Host), KeysOnly: true},
		model.KeyRange(model.HostMetadataKey{Host: r.Host}), model.PrefixRange(model.ReservationPrefix()))
	if r.Namespace != "" && r.Namespace != AnyNamespace {
		ranges = append(ranges, model.KeyRange(r.namespaceLabels()))
	}
	for _, a := range r.Addrs[:min(len(r.Addrs), 4)] { // the blocks of the others are read in the next round
		ranges = append(ranges, holdingRanges(a)...)
	}
	return ranges
}

// FirstReadRelease returns the ranges that Release must see first.
func FirstReadRelease(handle string) []model.Range {
	return append(handleRanges(handle), model.KeyRange(model.IPAMConfigKey{}), model.PrefixRange(model.PoolPrefix()))
}

// FirstReadGiveBack returns the ranges that GiveBack must see first.
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

// holdingRanges returns the ranges of the blocks, of any size, that may contain the address.
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

// named reports whether the request asks for specific addresses of the family.
func (r Request) named(v6 bool) bool {
	return slices.ContainsFunc(r.Addrs, func(addr netip.Addr) bool { return addr.Unmap().Is6() == v6 })
}

// namespaceLabels returns the key that has the labels of the request's namespace.
func (r Request) namespaceLabels() model.ProfileLabelsKey {
	return model.ProfileLabelsKey{Profile: model.NamespaceProfile(r.Namespace)}
}

func isV6(p netip.Prefix) bool { return p.Addr().Is6() }

func familyName(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}
