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

// NoPoolError says that no pool may serve the request at all.
type NoPoolError struct {
	IPv6  bool
	Pools []PoolReason // all of the family, or those requested
}

// Error names each pool that was looked at.
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
	Exists []string // pools of that family, called as the requested one is
	Other  bool     // it is a pool of the other family
}

// Error names the pool, and those that exist.
func (e *UnknownPoolError) Error() string {
	if e.Other || e.Pool.CIDR.IsValid() && isV6(e.Pool.CIDR) != e.IPv6 {
		return fmt.Sprintf("requested pool %s: not an %s pool", e.Pool, familyName(e.IPv6))
	}
	if len(e.Exists) == 0 {
		return fmt.Sprintf("requested pool %s: no %s pool exists", e.Pool, familyName(e.IPv6))
	}
	return fmt.Sprintf("requested pool %s: no such pool, there are %s", e.Pool, strings.Join(e.Exists, ", "))
}

// ExhaustedError says that pools may serve the request and have no address left for it.
type ExhaustedError struct {
	IPv6  bool
	Pools []PoolReason
	// Fixed: auto_allocate_blocks is false, and the host gets no other blocks than it has.
	Fixed bool
}

// Error names each pool that was looked at.
func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("no free %s address: %s", familyName(e.IPv6), reasons(e.Pools))
}

// TakenError says that a wanted address belongs to another handle, or to an endpoint though its block calls it free.
type TakenError struct {
	Addr   netip.Addr
	Block  netip.Prefix
	Handle string // "": allocated without a handle
	// Attributes are the holder's.
	Attributes map[string]string
	Endpoint   string // its path; "": it is allocated
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

// UnavailableError says that a wanted address is free and yet can't be had by this node.
type UnavailableError struct {
	Addr   netip.Addr
	Reason string
}

// Error says why.
func (e *UnavailableError) Error() string { return fmt.Sprintf("address %s: %s", e.Addr, e.Reason) }

// InvalidError says that an entry that matters here is not valid. It is never
// overwritten: a person must see to it.
type InvalidError struct {
	Path string
	Err  error
}

// Error names the key.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s: %v; %s", e.Path, e.Err, model.Remedy(e.Path))
}

// Unwrap is why it is not valid.
func (e *InvalidError) Unwrap() error { return e.Err }

func reasons(pools []PoolReason) string {
	parts := make([]string, len(pools))
	for i, p := range pools {
		parts[i] = fmt.Sprintf("pool %s: %s", p.CIDR, p.Reason)
	}
	return strings.Join(parts, "; ")
}
