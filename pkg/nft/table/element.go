// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// Element is an element in the kernel's bytes, the parts of a concatenation padded to 4.
type Element struct {
	Key  string
	End  string // first after the range; "" = up to the last value
	Data string // a map's value; a verdict map's chain; a set's comment
}

// MaxInterface is the longest name of an interface (IFNAMSIZ, less the NUL).
const MaxInterface = 15

// Concat makes one key of several parts.
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

// AddrBytes returns an address as it is in an element or a statement.
func AddrBytes(a netip.Addr) string { return string(a.AsSlice()) }

// NameBytes returns the name of an interface, padded.
func NameBytes(name string) string {
	var b [16]byte
	copy(b[:MaxInterface], name)
	return string(b[:])
}

// IndexBytes returns the index of a link as it is in keys.
func IndexBytes(index int) string {
	return string(binary.NativeEndian.AppendUint32(nil, uint32(index)))
}

// VNIBytes returns a VNI as it is in keys.
func VNIBytes(vni uint32) string { return string(binary.BigEndian.AppendUint32(nil, vni)[1:]) }

// PortBytes returns a port in network order.
func PortBytes(p uint16) string { return string(binary.BigEndian.AppendUint16(nil, p)) }

// Last returns the last value of a range.
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

// Ranges returns the addresses of prefixes as sorted ranges that don't touch: the kernel takes adjacent ranges for an overlap of their
// ends.
func Ranges(nets []netip.Prefix) []Element {
	var b netipx.IPSetBuilder
	for _, p := range nets {
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil {
		panic(err) // a prefix is invalid
	}
	var out []Element
	for _, r := range set.Ranges() {
		e := Element{Key: AddrBytes(r.From())}
		if end := r.To().Next(); end.IsValid() {
			e.End = AddrBytes(end)
		}
		out = append(out, e)
	}
	return out
}

// Prefix returns a range of addresses as a prefix, if it is one.
func (e Element) Prefix() (netip.Prefix, bool) {
	first, _ := netip.AddrFromSlice([]byte(e.Key))
	last, _ := netip.AddrFromSlice([]byte(e.Last()))
	return netipx.IPRangeFrom(first, last).Prefix()
}

// sorted returns the elements in order of their keys.
func sorted(elements []Element) []Element {
	return slices.SortedFunc(slices.Values(elements), func(a, b Element) int { return strings.Compare(a.Key, b.Key) })
}
