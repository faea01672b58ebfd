// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// appendAttr appends a netlink attribute.
func appendAttr(b []byte, kind uint16, data []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return pad(append(b, data...))
}

func appendString(b []byte, kind uint16, s string) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(s)+1))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return pad(append(append(b, s...), 0))
}

func appendUint32(b []byte, kind uint16, v uint32) []byte {
	return appendAttr(b, kind, binary.BigEndian.AppendUint32(nil, v))
}

func appendUint64(b []byte, kind uint16, v uint64) []byte {
	return appendAttr(b, kind, binary.BigEndian.AppendUint64(nil, v))
}

// openAttr begins an attribute of attributes, which closeAttr ends.
func openAttr(b []byte, kind uint16) ([]byte, int) {
	at := len(b)
	return append(b, 0, 0, byte(kind|unix.NLA_F_NESTED), byte((kind|unix.NLA_F_NESTED)>>8)), at
}

// closeAttr also puts the kind into the host's byte order.
func closeAttr(b []byte, at int) []byte {
	kind := uint16(b[at+2]) | uint16(b[at+3])<<8
	binary.NativeEndian.PutUint16(b[at:], uint16(len(b)-at))
	binary.NativeEndian.PutUint16(b[at+2:], kind)
	return b
}

func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// attrs are the attributes in b. It ends at what is no attribute.
func attrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofNlAttr || n > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[unix.SizeofNlAttr:n]) {
				return
			}
			b = b[min(len(b), (n+3)&^3):]
		}
	}
}

// attr is the first attribute of the kind, nil where there is none.
func attr(b []byte, want uint16) []byte {
	for kind, data := range attrs(b) {
		if kind == want {
			return data
		}
	}
	return nil
}

// text is a string with its NUL.
func text(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == 0 {
		b = b[:n-1]
	}
	return string(b)
}

// isText says whether b is a string with its NUL.
func isText(b []byte, s string) bool {
	return len(b) == len(s)+1 && string(b[:len(s)]) == s
}

// number is a big-endian number of up to 8 bytes.
func number(b []byte) uint64 {
	v := uint64(0)
	for _, c := range b[:min(len(b), 8)] {
		v = v<<8 | uint64(c)
	}
	return v
}

// header of a netlink message, and what follows it in nftables' messages.
type header struct {
	kind  uint16
	flags uint16
	seq   uint32
	port  uint32
}

const (
	headerSize = unix.SizeofNlMsghdr
	familySize = 4 // nfgenmsg: family, version, resource
)

// openMessage begins a message to nftables, which closeMessage ends.
func openMessage(b []byte, kind int, flags uint16, seq uint32) ([]byte, int) {
	at := len(b)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.NFNL_SUBSYS_NFTABLES<<8|kind))
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(b, unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0), at
}

func closeMessage(b []byte, at int) []byte {
	binary.NativeEndian.PutUint32(b[at:], uint32(len(b)-at))
	return b
}

// messages are those in what was received.
func messages(b []byte) iter.Seq2[header, []byte] {
	return func(yield func(header, []byte) bool) {
		for len(b) >= headerSize {
			n := int(binary.NativeEndian.Uint32(b))
			if n < headerSize || n > len(b) {
				return
			}
			h := header{
				binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]),
				binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:]),
			}
			if !yield(h, b[headerSize:n]) {
				return
			}
			b = b[min(len(b), (n+3)&^3):]
		}
	}
}
