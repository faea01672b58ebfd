// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// A region is a /24 of IPv4 or a /120 of IPv6. The paths of all blocks that begin in a region share a prefix, so one
// listing finds them whatever their size. That is how overlaps with blocks of another size, left by a pool that was
// changed or replaced, are found without knowing which sizes exist.

// regionLimit bounds the listing of a region. An IPv4 region has at most 256 blocks. The path prefix of an IPv6 region
// may match other paths too; if that exceeds the limit, the whole pool is listed instead.
const regionLimit = 300

// listLimit is the page size for listing a pool.
const listLimit = 1 << 14

func regionBits(v6 bool) int {
	if v6 {
		return 120
	}
	return 24
}

// largestBlock is the prefix length of the largest block, 2^12 addresses. The data model has no keys for larger ones.
func largestBlock(v6 bool) int {
	if v6 {
		return 116
	}
	return 20
}

func regionOf(a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(a, regionBits(a.Is6())).Masked()
}

// regionRanges returns the ranges that list every block beginning in the region.
func regionRanges(r netip.Prefix) []model.Range {
	list := func(prefix string) model.Range {
		return model.Range{Prefix: prefix, KeysOnly: true, Limit: regionLimit}
	}
	if !isV6(r) {
		path := blockText(r.Addr())
		return []model.Range{list(path[:strings.LastIndexByte(path, '.')+1])}
	}
	// The second address has no run of zeros at its end, so its text without the last two hexadecimal digits is a
	// prefix of all the others.
	path := blockText(r.Addr().Next())
	bytes := r.Addr().As16()
	if bytes[14] != 0 {
		return []model.Range{list(path[:len(path)-2])}
	}
	// The last group has no leading zeros, and the first address may be abbreviated where the others aren't.
	return []model.Range{list(path[:len(path)-1]), list(blockText(r.Addr()) + "-")}
}

// blockText returns the path of a block that begins at the address, without the prefix length.
func blockText(a netip.Addr) string {
	path := model.BlockKey{CIDR: netip.PrefixFrom(a, a.BitLen())}.Path()
	return path[:strings.LastIndexByte(path, '-')]
}

// overlapRanges returns what must be known to decide whether a block overlaps c.
func overlapRanges(c netip.Prefix) []model.Range {
	bits := regionBits(isV6(c))
	var ranges []model.Range
	first := regionOf(c.Addr())
	for r := first; r.IsValid() && c.Overlaps(r); r = nextPrefix(r) {
		ranges = append(ranges, regionRanges(r)...)
	}
	for l := largestBlock(isV6(c)); l < min(bits, c.Bits()); l++ {
		if super := netip.PrefixFrom(c.Addr(), l).Masked(); super.Addr() != first.Addr() {
			ranges = append(ranges, model.Range{Key: model.BlockKey{CIDR: super}, KeysOnly: true})
		}
	}
	return ranges
}

// nextPrefix returns the prefix of the same length after p; the zero Prefix after the last.
func nextPrefix(p netip.Prefix) netip.Prefix {
	n := numberOf(p.Addr()).add(one.shl(p.Addr().BitLen() - p.Bits()))
	a := n.addr(isV6(p))
	if a.Compare(p.Addr()) <= 0 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, p.Bits())
}

// poolRanges returns the ranges that list, page by page, the names of all blocks that overlap the pool, along with
// others whose paths begin alike. Names are cheap to read.
func (x *index) poolRanges(p *pool) []model.Range {
	c := p.CIDR
	text := model.BlockPrefix(isV6(c))
	if !isV6(c) {
		octets := strings.SplitAfter(c.Addr().String(), ".")
		text += strings.Join(octets[:min(c.Bits()/8, 3)], "")
	}
	ranges := []model.Range{{Prefix: text, From: x.pages[text], KeysOnly: true, Limit: listLimit}}
	for l := largestBlock(isV6(c)); l < c.Bits(); l++ { // larger blocks that begin before the pool
		around := netip.PrefixFrom(c.Addr(), l).Masked()
		ranges = append(ranges, model.Range{Key: model.BlockKey{CIDR: around}, KeysOnly: true})
	}
	return ranges
}
