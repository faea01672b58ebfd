// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Message is one rtnetlink request under construction: header, then attributes.
type Message []byte

// NewMessage starts a request; body is the fixed part that follows the header.
func NewMessage(kind, flags uint16, body []byte) *Message {
	m := make(Message, unix.SizeofNlMsghdr, 256)
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], flags|unix.NLM_F_REQUEST)
	m = append(m, body...)
	return &m
}

// Align4 is the length with what fills it up to a multiple of 4.
func Align4(n int) int { return (n + 3) &^ 3 }

// Attr adds an attribute; those below, one with such a value.
func (m *Message) Attr(kind uint16, data []byte) {
	*m = binary.NativeEndian.AppendUint16(*m, uint16(unix.SizeofRtAttr+len(data)))
	*m = binary.NativeEndian.AppendUint16(*m, kind)
	*m = append(*m, data...)
	for len(*m)%4 != 0 {
		*m = append(*m, 0)
	}
}

func (m *Message) Attr8(kind uint16, v uint8) { m.Attr(kind, []byte{v}) }
func (m *Message) Attr32(kind uint16, v uint32) {
	m.Attr(kind, binary.NativeEndian.AppendUint32(nil, v))
}
func (m *Message) Attr64(kind uint16, v uint64) {
	m.Attr(kind, binary.NativeEndian.AppendUint64(nil, v))
}
func (m *Message) AttrString(kind uint16, s string) { m.Attr(kind, append([]byte(s), 0)) }
func (m *Message) AttrAddr(kind uint16, a netip.Addr) {
	m.Attr(kind, a.AsSlice())
}

// Nest adds an attribute that holds those that fill adds.
func (m *Message) Nest(kind uint16, fill func()) {
	start := len(*m)
	*m = append(*m, 0, 0, 0, 0)
	fill()
	binary.NativeEndian.PutUint16((*m)[start:], uint16(len(*m)-start))
	binary.NativeEndian.PutUint16((*m)[start+2:], kind|unix.NLA_F_NESTED)
}

// LinkBody is struct ifinfomsg.
func LinkBody(family uint8, index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	b[0] = family
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// AddrBody is struct ifaddrmsg.
func AddrBody(p netip.Prefix, scope uint8, index int) []byte {
	b := make([]byte, unix.SizeofIfAddrmsg)
	b[0], b[1], b[3] = FamilyOf(p.Addr()), uint8(p.Bits()), scope
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return b
}

// RouteBody is struct rtmsg, of the main table.
func RouteBody(family uint8, bits int, protocol, scope uint8) []byte {
	b := make([]byte, unix.SizeofRtMsg)
	b[0], b[1] = family, uint8(bits)
	b[4], b[5], b[6], b[7] = unix.RT_TABLE_MAIN, protocol, scope, unix.RTN_UNICAST
	return b
}

// NeighBody is struct ndmsg.
func NeighBody(family uint8, index int, state uint16, flags uint8) []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = family
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint16(b[8:], state)
	b[10] = flags
	return b
}

// FamilyOf is AF_INET or AF_INET6.
func FamilyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Attributes calls fn for each attribute in b. The kernel wrote b, yet a cut
// attribute ends the walk and never panics.
func Attributes(b []byte, fn func(kind uint16, data []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		fn(kind, b[unix.SizeofRtAttr:n])
		b = b[min(Align4(n), len(b)):]
	}
}

// Uint32 reads an attribute's number; 0 where it is cut.
func Uint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// Text reads one that ends with a zero.
func Text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Addr reads an address; the zero Addr where it has no address's length.
func Addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}
