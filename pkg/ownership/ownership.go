// SPDX-License-Identifier: Apache-2.0

// Package ownership knows which of a host's workload endpoints has what only one may have: an interface, an address, the outer address of
// a 1:1 NAT. Of several that claim one it is the one that can't be without it, and of those the one that was made first: a newcomer
// takes nothing away but another's outer address that is its own. An endpoint that has lost one thing still has its others, so that the
// answers depend on what there is, and not on the order in which it was heard of.
package ownership

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Claim is what only one endpoint may have.
type Claim struct {
	Interface string
	Addr      netip.Addr // valid: it is an address
}

func (c Claim) String() string {
	if c.Addr.IsValid() {
		return "address " + c.Addr.String()
	}
	return "interface " + c.Interface
}

// endpoint is one that claims something.
type endpoint struct {
	path    string
	created int64
	own     []netip.Addr // without the outer ones
	claims  []Claim
}

// needs says that the endpoint can't be without what it claims.
func (e *endpoint) needs(c Claim) bool { return !c.Addr.IsValid() || slices.Contains(e.own, c.Addr) }

// Table has the endpoints by path, rather than by key: one key that is stored twice, in two spellings, is two endpoints that claim the
// same. Make one with New.
type Table struct {
	endpoints map[string]*endpoint
	by        map[Claim][]*endpoint
	touched   func(path string)
}

// New makes a table without endpoints. It tells of each other endpoint of which the answers may be others after a change.
func New(touched func(path string)) *Table {
	return &Table{endpoints: map[string]*endpoint{}, by: map[Claim][]*endpoint{}, touched: touched}
}

// Put enters an endpoint that was made at a revision, in the place of what it was. nil: it claims nothing, or is gone.
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

// claimsOf are the interface of an endpoint, its addresses, and the outer ones of its NAT.
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

// Touch tells of all that claim something.
func (t *Table) Touch(c Claim) {
	for _, e := range t.by[c] {
		t.touched(e.path)
	}
}

// Claims are those of an endpoint, its interface first.
func (t *Table) Claims(path string) []Claim {
	if e := t.endpoints[path]; e != nil {
		return e.claims
	}
	return nil
}

// Needs says that an endpoint can't be without what it claims: its interface, or an address of its own.
func (t *Table) Needs(path string, c Claim) bool {
	e := t.endpoints[path]
	return e != nil && e.needs(c)
}

// Holder is the other endpoint that has what one claims, "" where it has it itself, or claims nothing.
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
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.path, b.path)) // by name, those of one transaction
	})
	if first.path == path {
		return ""
	}
	return first.path
}

// Len is how many things are claimed.
func (t *Table) Len() int { return len(t.by) }
