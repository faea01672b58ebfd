// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// A region is a /24 of IPv4 or a /120 of IPv6. The paths of all blocks that
// begin in one share a beginning of their text, so that one listing finds them
// whatever their size. That is how overlaps with blocks of another size, left
// by a pool that was changed or replaced, are found without knowing which
// sizes there are.

// regionLimit bounds what listing a region reads. An IPv4 region has at most
// 256 blocks. The text of an IPv6 region may begin other paths too; if that
// makes it longer, the pool is listed instead.
const regionLimit = 300

// listLimit is the length of a page when a whole pool is listed: as good as all have one.
const listLimit = 1 << 15

func regionBits(v6 bool) int {
	if v6 {
		return 120
	}
	return 24
}

// largestBlock is the prefix length of the largest block, 2^12 addresses: no
// key of a larger one is of the data model.
func largestBlock(v6 bool) int {
	if v6 {
		return 116
	}
	return 20
}

func regionOf(a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(a, regionBits(a.Is6())).Masked()
}

// regionWants list every block that begins in the region.
func regionWants(r netip.Prefix) []Want {
	list := func(prefix string) Want { return Want{Prefix: prefix, KeysOnly: true, Limit: regionLimit} }
	if !isV6(r) {
		path := blockText(r.Addr())
		return []Want{list(path[:strings.LastIndexByte(path, '.')+1])}
	}
	// The address after the first has no run of zeros at its end, so that its
	// text but for the last two hexadecimal digits begins that of all others.
	path := blockText(r.Addr().Next())
	bytes := r.Addr().As16()
	if bytes[14] != 0 {
		wants := []Want{list(path[:len(path)-2])}
		return wants
	}
	// Digits of the last group have no leading zeros; and the first address
	// may be shortened where the others aren't.
	return []Want{list(path[:len(path)-1]), list(blockText(r.Addr()) + "-")}
}

// blockText is the path of a block that begins at the address, up to its length.
func blockText(a netip.Addr) string {
	path := model.BlockKey{CIDR: netip.PrefixFrom(a, a.BitLen())}.Path()
	return path[:strings.LastIndexByte(path, '-')]
}

// overlapWants is what must be known to say that no block overlaps c.
func overlapWants(c netip.Prefix) []Want {
	bits := regionBits(isV6(c))
	var wants []Want
	first := regionOf(c.Addr())
	for r := first; r.IsValid() && c.Overlaps(r); r = nextPrefix(r) {
		wants = append(wants, regionWants(r)...)
	}
	for l := largestBlock(isV6(c)); l < min(bits, c.Bits()); l++ {
		if super := netip.PrefixFrom(c.Addr(), l).Masked(); super.Addr() != first.Addr() {
			wants = append(wants, Want{Key: model.BlockKey{CIDR: super}, KeysOnly: true})
		}
	}
	return wants
}

// nextPrefix is the one of the same length after p; the zero Prefix after the last.
func nextPrefix(p netip.Prefix) netip.Prefix {
	n := numberOf(p.Addr()).add(one.shl(p.Addr().BitLen() - p.Bits()))
	a := n.addr(isV6(p))
	if a.Compare(p.Addr()) <= 0 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, p.Bits())
}

// poolWant lists, page by page, every block that may overlap the pool and
// begins in it; others too, where the text of the pool's addresses isn't theirs alone.
func (v *View) poolWant(c netip.Prefix) Want {
	w := Want{Prefix: poolText(c), KeysOnly: true, Limit: listLimit}
	if l := v.listings[w.Prefix]; l != nil && !l.done {
		w.From = l.next
	}
	return w
}

func poolText(c netip.Prefix) string {
	text := model.BlockPrefix(isV6(c))
	if !isV6(c) {
		octets := c.Addr().As4()
		for _, o := range octets[:min(c.Bits()/8, 3)] {
			text += itoa(o) + "."
		}
		return text
	}
	// Groups up to the first zero are written as they are in every address of
	// the pool: only zeros are ever left out.
	bytes := c.Addr().As16()
	for i := range min(c.Bits()/16, 7) {
		group := uint16(bytes[2*i])<<8 | uint16(bytes[2*i+1])
		if group == 0 {
			break
		}
		text += hex(group) + ":"
	}
	return text
}
