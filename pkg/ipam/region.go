// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
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

// listLimit is the length of a page when a pool is listed.
const listLimit = 1 << 16

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

// maxTexts bounds by how many texts a pool is listed.
const maxTexts = 256

// poolWants list, page by page, every block that begins in the pool; others too, where the text of its addresses isn't
// theirs alone.
func (v *View) poolWants(p *pool) []Want {
	octets := min(p.CIDR.Bits()/8, 3) // names cost little, also those of another pool's blocks
	for more := octets + 1; more <= 3 && 1<<(8*more-p.CIDR.Bits()) <= maxTexts && 1<<(p.BlockSize-8*octets) > listLimit; more++ {
		octets = more
	}
	var wants []Want
	for _, text := range poolTexts(p.CIDR, octets) {
		w := Want{Prefix: text, KeysOnly: true, Limit: listLimit}
		if l := v.listings[text]; l != nil && !l.done {
			w.From = l.next
		}
		wants = append(wants, w)
	}
	return wants
}

// roomyWants ask for n blocks of the pool that the host may find room in, or a few more: where affinity is strict, empty ones.
// Where others may come first it is as many as a region has.
func roomyWants(p *pool, n int, strict bool) []Want {
	before := model.FullBlock
	if strict {
		before = model.UsedBlock
	}
	texts := poolTexts(p.CIDR, textOctets(p.CIDR))
	if !isV6(p.CIDR) && p.CIDR.Bits() > regionBits(false) {
		n = regionLimit
	}
	wants := make([]Want, len(texts))
	for i, text := range texts {
		wants[i] = Want{Prefix: text, Before: before, Limit: int64(max(1, n/len(texts)))}
	}
	return wants
}

// textOctets is how many octets of an address tell that an IPv4 pool has it, or its region.
func textOctets(c netip.Prefix) int { return min((c.Bits()+7)/8, 3) }

// poolGroups is what the texts of all addresses of an IPv6 pool begin with. Of two or more groups of zeros in a row the
// first longest run is left out (RFC 5952, section 4.2), and nothing else.
func poolGroups(c netip.Prefix) (text string) {
	bytes := c.Addr().As16()
	group := func(i int) uint16 { return binary.BigEndian.Uint16(bytes[2*i:]) }
	fixed := min(c.Bits()/16, 7)
	for i := 0; i < fixed; i++ {
		zeros := 0
		for i+zeros < fixed && group(i+zeros) == 0 {
			zeros++
		}
		switch toEnd := i+zeros == fixed; {
		case toEnd && zeros > 1 && zeros >= 8-fixed-1:
			// What comes behind has no longer run, as it has another group before it.
			if i == 0 {
				text = ":"
			}
			return text + ":"
		case zeros > 1 || zeros == 1 && toEnd:
			return text
		}
		text += hex(group(i)) + ":"
	}
	return text
}

// poolTexts are what the paths of blocks that begin in the pool begin with: for IPv4 so many octets. With textOctets of them
// blocks of other pools have such paths only where an IPv4 pool is smaller than a region, or for IPv6.
func poolTexts(c netip.Prefix, octets int) []string {
	text := model.BlockPrefix(isV6(c))
	if isV6(c) {
		return []string{text + poolGroups(c)}
	}
	address := c.Addr().As4()
	first, n := binary.BigEndian.Uint32(address[:])>>(32-8*octets), 1<<max(0, 8*octets-c.Bits())
	texts := make([]string, n)
	for i := range texts {
		t := text
		for shift := 8 * (octets - 1); shift >= 0; shift -= 8 {
			t += itoa(byte((first+uint32(i))>>shift)) + "."
		}
		texts[i] = t
	}
	return texts
}
