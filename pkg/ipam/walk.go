// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// A walk is the order in which a host tries the blocks of a pool. It begins at a hash of the host and the pool, so that
// hosts don't collide, and goes round the pool once. It goes by units, each of which is what one look at etcd covers: a
// region, or the whole pool if that is smaller, or one block if that is larger. Within the first unit it also begins at
// a hash.
type walk struct {
	pool      *pool
	unit      int // prefix length
	unitBits  int // the pool has 2^unitBits units
	innerBits int // a unit has 2^innerBits blocks
	start     number
	offset    uint64
}

func walkOf(host string, p *pool) walk {
	w := walk{pool: p, unit: min(p.BlockSize, max(regionBits(isV6(p.CIDR)), p.CIDR.Bits()))}
	w.unitBits = w.unit - p.CIDR.Bits()
	w.innerBits = p.BlockSize - w.unit
	h := fnv.New128a()
	h.Write([]byte(host))
	h.Write([]byte{0})
	h.Write(p.CIDR.Addr().AsSlice())
	sum := h.Sum(nil)
	a, b := mix(binary.BigEndian.Uint64(sum[:8])), mix(binary.BigEndian.Uint64(sum[8:]))
	w.start = number{a, b}.low(w.unitBits)
	w.offset = mix(a^b) & (1<<w.innerBits - 1)
	return w
}

// mix spreads every bit of x over the result, because host names differ little.
// (The finalizer of MurmurHash3.)
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// units returns the number of units of the pool, at most limit.
func (w walk) units(limit int) int {
	if w.unitBits < 16 {
		return min(limit, 1<<w.unitBits)
	}
	return limit
}

// at returns the i-th unit of the walk.
func (w walk) at(i int) netip.Prefix {
	n := w.start.add(number{lo: uint64(i)}).low(w.unitBits)
	return w.prefix(n, w.unit)
}

// within yields the blocks of the i-th unit, in order.
func (w walk) within(i int, yield func(netip.Prefix) bool) {
	base := w.start.add(number{lo: uint64(i)}).low(w.unitBits).shl(w.innerBits)
	size := uint64(1) << w.innerBits
	first := uint64(0)
	if i == 0 {
		first = w.offset
	}
	for j := range size {
		n := base.add(number{lo: (first + j) & (size - 1)})
		if !yield(w.prefix(n, w.pool.BlockSize)) {
			return
		}
	}
}

// prefix returns the n-th prefix of the given length in the pool.
func (w walk) prefix(n number, length int) netip.Prefix {
	a := numberOf(w.pool.CIDR.Addr()).add(n.shl(w.pool.CIDR.Addr().BitLen() - length))
	return netip.PrefixFrom(a.addr(isV6(w.pool.CIDR)), length)
}

// index is the inverse of prefix for blocks. For an address within a block, it returns that block's index.
func (w walk) index(a netip.Addr) number {
	offset := numberOf(a).sub(numberOf(w.pool.CIDR.Addr()))
	return offset.shr(w.pool.CIDR.Addr().BitLen() - w.pool.BlockSize)
}

// distance orders addresses of the pool by when the walk reaches them.
func (w walk) distance(a netip.Addr) number {
	width := w.pool.CIDR.Addr().BitLen() - w.pool.CIDR.Bits()
	return numberOf(a).sub(numberOf(w.at(0).Addr())).low(width)
}
