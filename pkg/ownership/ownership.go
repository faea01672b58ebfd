// SPDX-License-Identifier: Apache-2.0

// Package ownership determines which of a host's workload endpoints has what only one may have: an interface, an
// address, or the outer address of a 1:1 NAT. If several claim it, one that can't be without it has precedence, then
// the one that was created first: a newcomer takes nothing except an outer address of another endpoint that is its own
// address. An endpoint that has lost one thing keeps its others, so the answers depend on the current endpoints, not on
// the order in which they were added.
package ownership

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Claim is something that only one endpoint may have.
type Claim struct {
	Interface string
	Addr      netip.Addr // if valid, the claim is this address
}

func (c Claim) String() string {
	if c.Addr.IsValid() {
		return "address " + c.Addr.String()
	}
	return "interface " + c.Interface
}

// endpoint is an endpoint with claims.
type endpoint struct {
	path    string
	created int64
	own     []netip.Addr // without the outer ones
	claims  []Claim
}

// needs reports whether the endpoint can't be without what it claims.
func (e *endpoint) needs(c Claim) bool { return !c.Addr.IsValid() || slices.Contains(e.own, c.Addr) }

// Table has the endpoints by path instead of by key: a key stored twice, in two spellings, is two endpoints with the
// same claims. Make one with New.
type Table struct {
	endpoints map[string]*endpoint
	by        map[Claim][]*endpoint
	touched   func(path string)
}

// New returns an empty table. It calls touched for every other endpoint whose answers may differ after a change.
func New(touched func(path string)) *Table {
	return &Table{endpoints: map[string]*endpoint{}, by: map[Claim][]*endpoint{}, touched: touched}
}

// Put replaces the endpoint at path. created is its creation revision. A nil spec means that it claims nothing, or is
// gone.
func (t *Table) Put(path string, created int64, spec *model.WorkloadEndpoint) {
	if old := t.endpoints[path]; old != nil {
		delete(t.endpoints, path)
		for _, c := range old.claims {
			rest := slices.DeleteFunc(t.by[c], func(e *endpoint) bool { return e == old })
			if t.by[c] = rest; len(rest) == 0 {
				delete(t.by, c)
			}
			t.Touch(c)
		}
	}
	if spec == nil {
		return
	}
	e := &endpoint{path: path, created: created, own: spec.Addrs(), claims: claimsOf(spec)}
	t.endpoints[path] = e
	for _, c := range e.claims {
		t.Touch(c)
		t.by[c] = append(t.by[c], e)
	}
}

// claimsOf returns the claims of an endpoint: its interface, its addresses, and the outer addresses of its NAT.
func claimsOf(spec *model.WorkloadEndpoint) []Claim {
	addrs := slices.Clone(spec.Addrs())
	for _, n := range slices.Concat(spec.IPv4NAT, spec.IPv6NAT) {
		addrs = append(addrs, n.ExtIP)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	claims := []Claim{{Interface: spec.Name}}
	for _, a := range slices.Compact(addrs) {
		claims = append(claims, Claim{Addr: a})
	}
	return claims
}

// Touch calls touched for all endpoints with the claim.
func (t *Table) Touch(c Claim) {
	for _, e := range t.by[c] {
		t.touched(e.path)
	}
}

// Claims returns the claims of an endpoint, its interface first.
func (t *Table) Claims(path string) []Claim {
	if e := t.endpoints[path]; e != nil {
		return e.claims
	}
	return nil
}

// Needs reports whether an endpoint can't be without what it claims: its interface, or an address of its own.
func (t *Table) Needs(path string, c Claim) bool {
	e := t.endpoints[path]
	return e != nil && e.needs(c)
}

// Holder returns the other endpoint that has what the endpoint at path claims, "" if that has it itself or has no such
// claim.
func (t *Table) Holder(path string, c Claim) string {
	all := t.by[c]
	if t.endpoints[path] == nil || len(all) == 0 {
		return ""
	}
	first := slices.MinFunc(all, func(a, b *endpoint) int {
		if needs := a.needs(c); needs != b.needs(c) {
			if needs {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.path, b.path)) // path decides within one transaction
	})
	if first.path == path {
		return ""
	}
	return first.path
}

// Len returns how many things are claimed.
func (t *Table) Len() int { return len(t.by) }
