// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// message is one rtnetlink request under construction: header, then attributes.
type message []byte

// newMessage starts a request; body is the fixed part that follows the header.
func newMessage(kind, flags uint16, body []byte) *message {
	m := make(message, unix.SizeofNlMsghdr, 256)
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], flags|unix.NLM_F_REQUEST)
	m = append(m, body...)
	return &m
}

func align4(n int) int { return (n + 3) &^ 3 }

func (m *message) attr(kind uint16, data []byte) {
	*m = binary.NativeEndian.AppendUint16(*m, uint16(unix.SizeofRtAttr+len(data)))
	*m = binary.NativeEndian.AppendUint16(*m, kind)
	*m = append(*m, data...)
	for len(*m)%4 != 0 {
		*m = append(*m, 0)
	}
}

func (m *message) attr8(kind uint16, v uint8) { m.attr(kind, []byte{v}) }
func (m *message) attr32(kind uint16, v uint32) {
	m.attr(kind, binary.NativeEndian.AppendUint32(nil, v))
}
func (m *message) attr64(kind uint16, v uint64) {
	m.attr(kind, binary.NativeEndian.AppendUint64(nil, v))
}
func (m *message) attrString(kind uint16, s string) { m.attr(kind, append([]byte(s), 0)) }
func (m *message) attrAddr(kind uint16, a netip.Addr) {
	m.attr(kind, a.AsSlice())
}

// nest adds an attribute that holds those that fill adds.
func (m *message) nest(kind uint16, fill func()) {
	start := len(*m)
	*m = append(*m, 0, 0, 0, 0)
	fill()
	binary.NativeEndian.PutUint16((*m)[start:], uint16(len(*m)-start))
	binary.NativeEndian.PutUint16((*m)[start+2:], kind|unix.NLA_F_NESTED)
}

// linkBody is struct ifinfomsg.
func linkBody(family uint8, index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	b[0] = family
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// addrBody is struct ifaddrmsg.
func addrBody(p netip.Prefix, scope uint8, index int) []byte {
	b := make([]byte, unix.SizeofIfAddrmsg)
	b[0], b[1], b[3] = familyOf(p.Addr()), uint8(p.Bits()), scope
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return b
}

// routeBody is struct rtmsg, of the main table.
func routeBody(family uint8, bits int, protocol, scope uint8) []byte {
	b := make([]byte, unix.SizeofRtMsg)
	b[0], b[1] = family, uint8(bits)
	b[4], b[5], b[6], b[7] = unix.RT_TABLE_MAIN, protocol, scope, unix.RTN_UNICAST
	return b
}

// neighBody is struct ndmsg.
func neighBody(family uint8, index int, state uint16, flags uint8) []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = family
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint16(b[8:], state)
	b[10] = flags
	return b
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// attributes calls fn for each attribute in b. The kernel wrote b, yet a cut
// attribute ends the walk and never panics.
func attributes(b []byte, fn func(kind uint16, data []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		fn(kind, b[unix.SizeofRtAttr:n])
		b = b[min(align4(n), len(b)):]
	}
}

func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}
