// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// matcher collects what a rule matches for one IP version.
type matcher struct {
	version  int
	protocol model.Protocol
	match    []table.Statement
	never    bool // a negated criterion excludes everything
	nets     func(policy.SetID, int) bool
	ways     [][]alternative // of each, one must match
}

func (m *matcher) add(s table.Statement) { m.match = append(m.match, s) }

// addresses matches an address in each of the sets and in any of the nets; negated, in none.
func (m *matcher) addresses(sets []policy.SetID, nets []netip.Prefix, destination, not bool) {
	field := address(m.version, destination)
	if len(nets) > 0 {
		ranges := table.Ranges(nets)
		switch {
		case isAll(ranges[0]):
			m.never = m.never || not
		case len(ranges) == 1:
			m.add(single(field, not, ranges[0]))
		default:
			m.add(table.Among{Fields: []table.Field{field}, Not: not, Values: ranges, Ranges: true})
		}
	}
	for _, id := range sets {
		in := table.InSet{Fields: []table.Field{field}, Not: not, Set: PolicySetName(m.version, id, policy.KindAddrs)}
		nets := table.InSet{Fields: in.Fields, Not: not, Set: NetSetName(m.version, id)}
		switch {
		case m.nets == nil || !m.nets(id, m.version):
			m.add(in)
		case not:
			m.add(in)
			m.add(nets)
		default:
			out := in
			out.Not = true
			m.ways = append(m.ways, []alternative{{in, out}, {in: nets}})
		}
	}
}

// isAll reports whether a range contains all addresses, such as both halves of them. The kernel accepts no comparison for that.
func isAll(r table.Element) bool { return r.End == "" && strings.Trim(r.Key, "\x00") == "" }

// icmp matches type and code; negated, the two are one criterion.
func (m *matcher) icmp(match, not policy.Criteria) {
	typ, code := icmp(m.version, false), icmp(m.version, true)
	if match.ICMPType != nil {
		m.add(table.Is{Field: typ, Value: string([]byte{*match.ICMPType})})
	}
	if match.ICMPCode != nil {
		m.add(table.Is{Field: code, Value: string([]byte{*match.ICMPCode})})
	}
	switch {
	case not.ICMPType != nil && not.ICMPCode != nil:
		pair := table.Concat(string([]byte{*not.ICMPType}), string([]byte{*not.ICMPCode}))
		m.add(table.Among{Fields: []table.Field{typ, code}, Not: true, Values: []table.Element{{Key: pair}}})
	case not.ICMPType != nil:
		m.add(table.Is{Field: typ, Not: true, Value: string([]byte{*not.ICMPType})})
	}
}

// alternative is one of several ways to match a port or an address.
type alternative struct{ in, out table.Statement } // out is the opposite of in

// ports returns the alternatives for one end; none = any port.
func (m *matcher) ports(ports []model.Port, sets []policy.SetID, destination bool) []alternative {
	var out []alternative
	field := port(m.protocol, destination)
	if len(ports) > 0 {
		ranges := portRanges(ports)
		if len(ranges) > 1 {
			out = append(out, alternative{
				table.Among{Fields: []table.Field{field}, Values: ranges, Ranges: true},
				table.Among{Fields: []table.Field{field}, Values: ranges, Ranges: true, Not: true},
			})
		} else {
			out = append(out, alternative{single(field, false, ranges[0]), single(field, true, ranges[0])})
		}
	}
	for _, id := range sets {
		fields := []table.Field{address(m.version, destination), l4proto, field}
		name := PolicySetName(m.version, id, policy.KindPorts)
		out = append(out, alternative{table.InSet{Fields: fields, Set: name}, table.InSet{Fields: fields, Not: true, Set: name}})
	}
	return out
}

// portRanges returns sorted ranges that neither overlap nor touch.
func portRanges(ports []model.Port) []table.Element {
	sorted := slices.SortedFunc(slices.Values(ports), func(a, b model.Port) int { return int(a.Min) - int(b.Min) })
	var merged []model.Port
	for _, p := range sorted {
		if n := len(merged); n > 0 && int(p.Min) <= int(merged[n-1].Max)+1 {
			merged[n-1].Max = max(merged[n-1].Max, p.Max)
			continue
		}
		merged = append(merged, p)
	}
	var out []table.Element
	for _, p := range merged {
		e := table.Element{Key: table.PortBytes(p.Min)}
		if p.Max < 65535 {
			e.End = table.PortBytes(p.Max + 1)
		}
		out = append(out, e)
	}
	return out
}

// product combines each alternative of a list with each of the others. If apart, no packet matches two of them.
func product(lists [][]alternative, apart bool) [][]table.Statement {
	out := [][]table.Statement{nil}
	for _, list := range lists {
		var more [][]table.Statement
		for _, before := range out {
			for _, one := range combinations(list, apart) {
				more = append(more, slices.Concat(before, one))
			}
		}
		out = more
	}
	return out
}

// combinations returns the matches of each alternative.
func combinations(list []alternative, apart bool) [][]table.Statement {
	if len(list) == 0 {
		return [][]table.Statement{nil}
	}
	var out [][]table.Statement
	for i, a := range list {
		var one []table.Statement
		for _, before := range list[:i] {
			if apart {
				one = append(one, before.out)
			}
		}
		out = append(out, append(one, a.in))
	}
	return out
}

// demands returns the matches of the IP version and the protocol, unless fields imply them.
func (m *matcher) demands(match []table.Statement, version bool) []table.Statement {
	protocol := m.protocol != 0
	for _, s := range match {
		for _, f := range fieldsOf(s) {
			version = version && f.Family == 0
			protocol = protocol && f.Protocol == 0
		}
	}
	var out []table.Statement
	if version {
		out = append(out, isFamily(m.version))
	}
	if protocol {
		out = append(out, table.Is{Field: l4proto, Value: string([]byte{byte(m.protocol)})})
	}
	return out
}

func isFamily(version int) table.Statement {
	if version == 6 {
		return table.Is{Field: nfproto, Value: string([]byte{table.FamilyIPv6})}
	}
	return table.Is{Field: nfproto, Value: string([]byte{table.FamilyIPv4})}
}

// fieldsOf returns the fields that a match uses.
func fieldsOf(s table.Statement) []table.Field {
	switch s := s.(type) {
	case table.Is:
		return []table.Field{s.Field}
	case table.Between:
		return []table.Field{s.Field}
	case table.Within:
		return []table.Field{s.Field}
	case table.Among:
		return s.Fields
	case table.InSet:
		return s.Fields
	}
	return nil
}
