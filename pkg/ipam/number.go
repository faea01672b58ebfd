// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// number is a 128-bit unsigned integer: an address, or the index of a block in its pool.
type number struct{ hi, lo uint64 }

var one = number{lo: 1}

func numberOf(a netip.Addr) number {
	if a.Is4() {
		b := a.As4()
		return number{lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n number) addr(v6 bool) netip.Addr {
	if !v6 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(n.lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return netip.AddrFrom16(b)
}

func (n number) add(m number) number {
	lo, carry := bits.Add64(n.lo, m.lo, 0)
	hi, _ := bits.Add64(n.hi, m.hi, carry)
	return number{hi, lo}
}

func (n number) sub(m number) number {
	lo, borrow := bits.Sub64(n.lo, m.lo, 0)
	hi, _ := bits.Sub64(n.hi, m.hi, borrow)
	return number{hi, lo}
}

func (n number) shl(by int) number {
	if by >= 64 {
		return number{hi: n.lo << (by - 64)}
	}
	return number{n.hi<<by | n.lo>>(64-by), n.lo << by}
}

func (n number) shr(by int) number {
	if by >= 64 {
		return number{lo: n.hi >> (by - 64)}
	}
	return number{n.hi >> by, n.lo>>by | n.hi<<(64-by)}
}

// low returns the lowest width bits of n.
func (n number) low(width int) number {
	return n.sub(n.shr(width).shl(width))
}

func (n number) cmp(m number) int {
	switch {
	case n.hi != m.hi:
		if n.hi < m.hi {
			return -1
		}
		return 1
	case n.lo < m.lo:
		return -1
	case n.lo > m.lo:
		return 1
	}
	return 0
}
