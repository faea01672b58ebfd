// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
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

// VNIBytes are a VNI as keys have it.
func VNIBytes(vni uint32) string { return string(binary.BigEndian.AppendUint32(nil, vni)[1:]) }

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

// Prefix is the prefix that a range of addresses is, if it is one.
func (e Element) Prefix() (netip.Prefix, bool) {
	first, _ := netip.AddrFromSlice([]byte(e.Key))
	last, _ := netip.AddrFromSlice([]byte(e.Last()))
	return netipx.IPRangeFrom(first, last).Prefix()
}

// sorted are the elements in order of their keys.
func sorted(elements []Element) []Element {
	return slices.SortedFunc(slices.Values(elements), func(a, b Element) int { return strings.Compare(a.Key, b.Key) })
}
