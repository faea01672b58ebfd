// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"net/netip"
	"slices"
)

func parseReservation(r *reader) (v Reservation, err error) {
	err = r.record(into("cidrs", &v.CIDRs, each((*reader).prefix)), into("meta", &v.Meta, parseMeta))
	return v, err
}

func (v Reservation) format(w *writer) error {
	w.open('{')
	w.prefixes("cidrs", v.CIDRs)
	w.meta(v.Meta)
	w.close('}')
	return nil
}

// Reserved is a set of addresses. Each one is in a single prefix, and a prefix all of whose addresses are in the set is
// part of one of these. So the zero value is the empty set.
type Reserved []netip.Prefix

// ReservedOf returns the set of the addresses of all reservations among entries that can be read.
func ReservedOf(entries []Entry) Reserved {
	var cidrs []netip.Prefix
	for _, e := range entries {
		r, _ := e.Value.(Reservation)
		cidrs = append(cidrs, r.CIDRs...)
	}
	return NewReserved(cidrs)
}

// NewReserved returns the set of the addresses of some networks.
func NewReserved(cidrs []netip.Prefix) Reserved {
	sorted := slices.SortedFunc(slices.Values(cidrs), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var set Reserved
	for _, p := range sorted {
		if n := len(set); n > 0 && set[n-1].Overlaps(p) { // it is the larger one, or the same
			continue
		}
		set = append(set, p)
		for n := len(set); n > 1 && set[n-1].Bits() == set[n-2].Bits(); n = len(set) { // join two halves
			both := netip.PrefixFrom(set[n-1].Addr(), set[n-1].Bits()-1).Masked()
			if !both.Contains(set[n-2].Addr()) {
				break
			}
			set = append(set[:n-2], both)
		}
	}
	return set
}

// Contains reports whether the address is in the set.
func (s Reserved) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(s, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Covers reports whether all addresses of c are in the set.
func (s Reserved) Covers(c netip.Prefix) bool {
	return slices.ContainsFunc(s, func(p netip.Prefix) bool { return p.Bits() <= c.Bits() && p.Contains(c.Addr()) })
}

// Within returns the part of the set that is in c.
func (s Reserved) Within(c netip.Prefix) Reserved {
	if s.Covers(c) {
		return Reserved{c}
	}
	var part Reserved
	for _, p := range s {
		if p.Overlaps(c) {
			part = append(part, p)
		}
	}
	return part
}
