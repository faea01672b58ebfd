// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
)

// Element is in bytes as the kernel has them, the parts of a concatenation
// padded to 4.
type Element struct {
	Key  string
	End  string // first after the range; "" = up to the last there is
	Data string // of a map; the chain to go to, of a verdict map; of a set, a comment
}

// MaxInterface is how long an interface's name may be (IFNAMSIZ, less the NUL).
const MaxInterface = 15

// Concat makes one key of several data.
func Concat(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p)
		for n := len(p); n%4 != 0; n++ {
			b.WriteByte(0)
		}
	}
	return b.String()
}

// AddrBytes is an address as an element or a statement has it.
func AddrBytes(a netip.Addr) string { return string(a.AsSlice()) }

// NameBytes is the name of an interface, padded.
func NameBytes(name string) string {
	var b [16]byte
	copy(b[:MaxInterface], name)
	return string(b[:])
}

// IndexBytes is the index of a link.
func IndexBytes(index int) string {
	return string(binary.NativeEndian.AppendUint32(nil, uint32(index)))
}

// PortBytes is a port in network order.
func PortBytes(p uint16) string { return string(binary.BigEndian.AppendUint16(nil, p)) }

// Last is the last value of a range.
func (e Element) Last() string {
	if e.End == "" {
		return strings.Repeat("\xff", len(e.Key))
	}
	b := []byte(e.End)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return string(b)
}

// Ranges are the addresses of prefixes as ranges that are sorted and don't touch: the
// kernel takes neighbours for an overlap of their ends.
func Ranges(nets []netip.Prefix) []Element {
	var out []Element
	for _, p := range merge(nets) {
		r := rangeOf(p)
		if n := len(out); n > 0 && out[n-1].End == r.Key {
			out[n-1].End = r.End
			continue
		}
		out = append(out, r)
	}
	return out
}

// merge is the same addresses in prefixes that are sorted, none inside another.
func merge(nets []netip.Prefix) []netip.Prefix {
	masked := make([]netip.Prefix, 0, len(nets))
	for _, p := range nets {
		masked = append(masked, p.Masked())
	}
	slices.SortFunc(masked, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	out := masked[:0]
	for _, p := range masked {
		if len(out) == 0 || !out[len(out)-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// rangeOf is the range of the addresses of a prefix.
func rangeOf(p netip.Prefix) Element {
	return Element{Key: AddrBytes(p.Masked().Addr()), End: endOf(p)}
}

// endOf is the first address after a prefix, "" after the last there is.
func endOf(p netip.Prefix) string {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	if a = a.Next(); a.IsValid() {
		return AddrBytes(a)
	}
	return ""
}

// Prefix is the prefix that a range of addresses is, if it is one.
func (e Element) Prefix() (netip.Prefix, bool) {
	first, _ := netip.AddrFromSlice([]byte(e.Key))
	for bits := range first.BitLen() + 1 {
		p := netip.PrefixFrom(first, bits)
		if p.Masked().Addr() == first && endOf(p) == e.End {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// sorted are the elements in order of their keys.
func sorted(elements []Element) []Element {
	return slices.SortedFunc(slices.Values(elements), func(a, b Element) int { return strings.Compare(a.Key, b.Key) })
}
