// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"iter"
	"net/netip"
)

// index is a map by prefix. It finds what contains an address or lies inside a prefix in a time that depends on the
// number of lengths, not on the number of prefixes.
type index[V any] struct {
	all map[netip.Prefix]V
	// lengths counts the prefixes of each length, IPv4's first.
	lengths [2][129]int
}

func newIndex[V any]() index[V] { return index[V]{all: map[netip.Prefix]V{}} }

func (x *index[V]) length(p netip.Prefix) *int {
	if p.Addr().Is4() {
		return &x.lengths[0][p.Bits()]
	}
	return &x.lengths[1][p.Bits()]
}

func (x *index[V]) set(p netip.Prefix, v V) {
	if _, ok := x.all[p]; !ok {
		*x.length(p)++
	}
	x.all[p] = v
}

func (x *index[V]) remove(p netip.Prefix) {
	if _, ok := x.all[p]; ok {
		*x.length(p)--
		delete(x.all, p)
	}
}

// around yields the prefixes that contain all of p, including p itself, longest first.
func (x *index[V]) around(p netip.Prefix) iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		for bits := p.Bits(); bits >= 0; bits-- {
			outer := netip.PrefixFrom(p.Addr(), bits)
			if *x.length(outer) == 0 {
				continue
			}
			outer = outer.Masked()
			if v, ok := x.all[outer]; ok && !yield(outer, v) {
				return
			}
		}
	}
}

// longest returns the first of around.
func (x *index[V]) longest(p netip.Prefix) (netip.Prefix, V, bool) {
	for outer, v := range x.around(p) {
		return outer, v, true
	}
	var none V
	return netip.Prefix{}, none, false
}

// inside yields the prefixes within p, except p itself. It tries all possible ones, so p must be small.
func (x *index[V]) inside(p netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for bits := p.Bits() + 1; bits <= p.Addr().BitLen(); bits++ {
			if *x.length(netip.PrefixFrom(p.Addr(), bits)) == 0 {
				continue
			}
			for a := p.Addr(); p.Contains(a); {
				inner := netip.PrefixFrom(a, bits)
				if _, ok := x.all[inner]; ok && !yield(inner) {
					return
				}
				if a = last(inner).Next(); !a.IsValid() {
					break
				}
			}
		}
	}
}

// last returns the highest address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		switch free := (i+1)*8 - p.Bits(); {
		case free >= 8:
			b[i] = 0xff
		case free > 0:
			b[i] |= 1<<free - 1
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// single returns the prefix of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// within reports whether all of p lies in outer.
func within(p, outer netip.Prefix) bool {
	return p.Bits() >= outer.Bits() && outer.Contains(p.Addr())
}

// groups maps names to sets of members.
type groups[K, M comparable] map[K]map[M]struct{}

func (g groups[K, M]) add(k K, m M) {
	if g[k] == nil {
		g[k] = map[M]struct{}{}
	}
	g[k][m] = struct{}{}
}

func (g groups[K, M]) remove(k K, m M) {
	delete(g[k], m)
	if len(g[k]) == 0 {
		delete(g, k)
	}
}
