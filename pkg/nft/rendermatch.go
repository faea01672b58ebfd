// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// matcher gathers what a rule matches for one IP version.
type matcher struct {
	version  int
	protocol model.Protocol
	match    []Statement
	never    bool // a negated criterion excludes everything
}

func (m *matcher) add(s Statement) { m.match = append(m.match, s) }

// addresses: in each of the sets, in any of the nets; negated: in none.
func (m *matcher) addresses(sets []policy.SetID, nets []netip.Prefix, destination, not bool) {
	field := address(m.version, destination)
	if len(nets) > 0 {
		ranges := prefixRanges(merge(nets))
		switch {
		case isAll(ranges[0]):
			m.never = m.never || not
		case len(ranges) == 1:
			m.add(single(field, not, ranges[0]))
		default:
			m.add(Among{[]Field{field}, not, ranges, true})
		}
	}
	for _, id := range sets {
		m.add(InSet{[]Field{field}, not, addrSet(m.version, id)})
	}
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

// prefixRanges are prefixes that merge made, as ranges that don't touch: the
// kernel takes neighbours for an overlap of their ends.
func prefixRanges(nets []netip.Prefix) []Element {
	var out []Element
	for _, p := range nets {
		start, end := addrBytes(p.Addr()), endOf(p)
		if n := len(out); n > 0 && out[n-1].End == start {
			out[n-1].End = end
			continue
		}
		out = append(out, Element{Key: start, End: end})
	}
	return out
}

// isAll says of a range of addresses that each is in it, as with both halves of all
// there are. The kernel takes no comparison for that.
func isAll(r Element) bool { return r.End == "" && strings.Trim(r.Key, "\x00") == "" }

// icmp matches type and code; negated, the two are one criterion.
func (m *matcher) icmp(match, not policy.Criteria) {
	typ, code := icmp(m.version, false), icmp(m.version, true)
	if match.ICMPType != nil {
		m.add(Is{typ, false, string([]byte{*match.ICMPType})})
	}
	if match.ICMPCode != nil {
		m.add(Is{code, false, string([]byte{*match.ICMPCode})})
	}
	switch {
	case not.ICMPType != nil && not.ICMPCode != nil:
		pair := concat(string([]byte{*not.ICMPType}), string([]byte{*not.ICMPCode}))
		m.add(Among{Fields: []Field{typ, code}, Not: true, Values: []Element{{Key: pair}}})
	case not.ICMPType != nil:
		m.add(Is{typ, true, string([]byte{*not.ICMPType})})
	}
}

// alternative is one of several ways to match a port.
type alternative struct{ in, out Statement } // out is the opposite of in

// ports are the alternatives for one end; none = any port.
func (m *matcher) ports(ports []model.Port, sets []policy.SetID, destination bool) []alternative {
	var out []alternative
	field := port(m.protocol, destination)
	if len(ports) > 0 {
		ranges := portRanges(ports)
		if len(ranges) > 1 {
			out = append(out, alternative{
				Among{Fields: []Field{field}, Values: ranges, Ranges: true},
				Among{Fields: []Field{field}, Values: ranges, Ranges: true, Not: true},
			})
		} else {
			out = append(out, alternative{single(field, false, ranges[0]), single(field, true, ranges[0])})
		}
	}
	for _, id := range sets {
		fields := []Field{address(m.version, destination), l4proto, field}
		name := portSet(m.version, id)
		out = append(out, alternative{InSet{fields, false, name}, InSet{fields, true, name}})
	}
	return out
}

// portRanges are sorted, apart and not adjacent.
func portRanges(ports []model.Port) []Element {
	sorted := slices.SortedFunc(slices.Values(ports), func(a, b model.Port) int { return int(a.Min) - int(b.Min) })
	var merged []model.Port
	for _, p := range sorted {
		if n := len(merged); n > 0 && int(p.Min) <= int(merged[n-1].Max)+1 {
			merged[n-1].Max = max(merged[n-1].Max, p.Max)
			continue
		}
		merged = append(merged, p)
	}
	var out []Element
	for _, p := range merged {
		e := Element{Key: portBytes(p.Min)}
		if p.Max < 65535 {
			e.End = portBytes(p.Max + 1)
		}
		out = append(out, e)
	}
	return out
}

// product is each alternative of one end with each of the other. Where apart,
// no packet matches two of them.
func product(src, dst []alternative, apart bool) [][]Statement {
	var out [][]Statement
	for _, s := range ways(src, apart) {
		for _, d := range ways(dst, apart) {
			out = append(out, slices.Concat(s, d))
		}
	}
	return out
}

func ways(list []alternative, apart bool) [][]Statement {
	if len(list) == 0 {
		return [][]Statement{nil}
	}
	var out [][]Statement
	for i, a := range list {
		var way []Statement
		for _, before := range list[:i] {
			if apart {
				way = append(way, before.out)
			}
		}
		out = append(out, append(way, a.in))
	}
	return out
}

// demands are the IP version and the protocol, where no field implies them.
func (m *matcher) demands(match []Statement, version bool) []Statement {
	protocol := m.protocol != 0
	for _, s := range match {
		for _, f := range fieldsOf(s) {
			version = version && f.family == 0
			protocol = protocol && f.protocol == 0
		}
	}
	var out []Statement
	if version {
		out = append(out, isFamily(m.version))
	}
	if protocol {
		out = append(out, Is{l4proto, false, string([]byte{byte(m.protocol)})})
	}
	return out
}

func isFamily(version int) Statement {
	if version == 6 {
		return Is{nfproto, false, string([]byte{familyIPv6})}
	}
	return Is{nfproto, false, string([]byte{familyIPv4})}
}

// fieldsOf are the fields that a match looks at.
func fieldsOf(s Statement) []Field {
	switch s := s.(type) {
	case Is:
		return []Field{s.Field}
	case Between:
		return []Field{s.Field}
	case Within:
		return []Field{s.Field}
	case Among:
		return s.Fields
	case InSet:
		return s.Fields
	}
	return nil
}
