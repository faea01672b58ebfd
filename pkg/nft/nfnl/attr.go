// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// The numbers of attributes, from linux/netfilter/nf_tables.h. The table's name comes first in messages of every kind.
const (
	attrTable = 1
	attrName  = 2 // of a set; of the chain in a rule; of the set in elements
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

// appendNested appends an attribute of attributes, which fill appends.
func appendNested(b []byte, kind uint16, fill func(b []byte) []byte) []byte {
	at := len(b)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = fill(binary.NativeEndian.AppendUint16(b, kind|unix.NLA_F_NESTED))
	binary.NativeEndian.PutUint16(b[at:], uint16(len(b)-at))
	return b
}

func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// attrs iterates over the attributes in b, up to the first malformed one.
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

// attr returns the first attribute of a kind, nil if there is none.
func attr(b []byte, want uint16) []byte {
	for kind, data := range attrs(b) {
		if kind == want {
			return data
		}
	}
	return nil
}

// text returns a string without its NUL.
func text(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == 0 {
		b = b[:n-1]
	}
	return string(b)
}

// number decodes a big-endian number of up to 8 bytes.
func number(b []byte) uint64 {
	v := uint64(0)
	for _, c := range b[:min(len(b), 8)] {
		v = v<<8 | uint64(c)
	}
	return v
}

// Types of user data, from libnftnl's udata.h. The nft tool shows comments and ignores what it doesn't know.
const (
	udataComment    = 0
	udataKeyOrder   = 0 // of a set
	udataSetComment = 7
	udataHash       = 0xca
)

// appendUdata appends an entry of user data.
func appendUdata(b []byte, kind byte, data []byte) []byte {
	return append(append(b, kind, byte(len(data))), data...)
}

// udata returns the entry of a type in user data, nil if there is none.
func udata(b []byte, want byte) []byte {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == want {
			return b[2 : 2+int(b[1])]
		}
		b = b[2+int(b[1]):]
	}
	return nil
}
