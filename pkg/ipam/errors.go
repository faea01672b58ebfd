// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// PoolReason says why a pool did not give an address.
type PoolReason struct {
	CIDR   netip.Prefix
	Reason string
}

// NoPoolError says that no pool may serve the request.
type NoPoolError struct {
	IPv6  bool
	Pools []PoolReason // all of the family, or those requested
}

// Error lists the pools considered.
func (e *NoPoolError) Error() string {
	if len(e.Pools) == 0 {
		return fmt.Sprintf("no %s pool exists: create one", familyName(e.IPv6))
	}
	return fmt.Sprintf("no %s pool may serve this node: %s", familyName(e.IPv6), reasons(e.Pools))
}

// UnknownPoolError says that a requested pool does not exist in its family.
type UnknownPoolError struct {
	IPv6   bool // the family that it was requested for
	Pool   model.PoolRef
	Exists []string // pools of that family, written like the requested one
	Other  bool     // it is a pool of the other family
}

// Error names the pool and lists those that exist.
func (e *UnknownPoolError) Error() string {
	if e.Other || e.Pool.CIDR.IsValid() && isV6(e.Pool.CIDR) != e.IPv6 {
		return fmt.Sprintf("requested pool %s: not an %s pool", e.Pool, familyName(e.IPv6))
	}
	if len(e.Exists) == 0 {
		return fmt.Sprintf("requested pool %s: no %s pool exists", e.Pool, familyName(e.IPv6))
	}
	return fmt.Sprintf("requested pool %s: no such pool, there are %s", e.Pool, strings.Join(e.Exists, ", "))
}

// UnknownNamespaceError says that a namespace has no profile yet, so that it isn't known whether a pool is for its pods.
type UnknownNamespaceError struct {
	Namespace string
	Pool      netip.Prefix
}

// Error names the namespace, and the pool that selects namespaces.
func (e *UnknownNamespaceError) Error() string {
	return fmt.Sprintf("namespace %s has no profile in etcd yet, so its labels can't be compared with the namespace_selector of pool %s", e.Namespace, e.Pool)
}

// ExhaustedError says that there are pools for the request but none has a free address for it.
type ExhaustedError struct {
	IPv6  bool
	Pools []PoolReason
	// Fixed says that auto_allocate_blocks is false, so the host gets no further blocks.
	Fixed bool
}

// Error lists the pools considered.
func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("no free %s address: %s", familyName(e.IPv6), reasons(e.Pools))
}

// TakenError says that a requested address belongs to another handle, or to an endpoint although its block has it as
// free.
type TakenError struct {
	Addr   netip.Addr
	Block  netip.Prefix
	Handle string // "" if allocated without a handle
	// Attributes are the holder's.
	Attributes map[string]string
	Endpoint   string // path of the endpoint; "" if the address is allocated
}

// Error names the holder.
func (e *TakenError) Error() string {
	if e.Endpoint != "" {
		return fmt.Sprintf("address %s is taken by endpoint %s, though no block says so", e.Addr, e.Endpoint)
	}
	if e.Handle == "" {
		return fmt.Sprintf("address %s is taken, without a handle, in block %s", e.Addr, e.Block)
	}
	return fmt.Sprintf("address %s is taken by handle %s", e.Addr, e.Handle)
}

// UnavailableError says that a requested address is free but not available to this node.
type UnavailableError struct {
	Addr   netip.Addr
	Reason string
}

// Error returns the address and the reason.
func (e *UnavailableError) Error() string { return fmt.Sprintf("address %s: %s", e.Addr, e.Reason) }

// InvalidError says that an entry needed here is invalid. It is never overwritten: a person must correct it.
type InvalidError struct {
	Path string
	Err  error
}

// Error names the key, the problem and the remedy.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s: %v; %s", e.Path, e.Err, model.Remedy(e.Path))
}

// Unwrap returns the problem.
func (e *InvalidError) Unwrap() error { return e.Err }

func reasons(pools []PoolReason) string {
	parts := make([]string, len(pools))
	for i, p := range pools {
		parts[i] = fmt.Sprintf("pool %s: %s", p.CIDR, p.Reason)
	}
	return strings.Join(parts, "; ")
}
