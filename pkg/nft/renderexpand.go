// SPDX-License-Identifier: Apache-2.0

package nft

import "net/netip"

// The kernel goes through all sets of a table whenever it makes one or finds one
// by its name: 10,000 anonymous sets take it 13 s. So a rule that lists a few
// values becomes a few rules, and with many rules in a policy, some more.
const (
	maxExpand     = 4
	maxExpandMany = 32
	manyRules     = 500
	// maxOthers is how many statements tell the IP version and the protocol, count, log
	// and decide.
	maxOthers = 6
)

// expand replaces lists of values by single ones, as long as no more than limit
// rules come of it, and none that is too long.
func expand(match []Statement, limit int) [][]Statement {
	out := [][]Statement{nil}
	long := len(match) + maxOthers
	for _, s := range match {
		singles := singles(s)
		switch {
		case len(singles) == 0:
			for i := range out {
				out[i] = append(out[i], s)
			}
		case s.(Among).Not && len(singles) <= limit && long+len(singles)-1 <= surelyFit:
			long += len(singles) - 1
			for i := range out {
				out[i] = append(out[i], singles...)
			}
		case !s.(Among).Not && len(out)*len(singles) <= limit:
			var more [][]Statement
			for _, way := range out {
				for _, one := range singles {
					more = append(more, append(way[:len(way):len(way)], one))
				}
			}
			out = more
		default:
			for i := range out {
				out[i] = append(out[i], s)
			}
		}
	}
	return out
}

// singles are the comparisons that a list of ranges is made of, none where it
// isn't one.
func singles(s Statement) []Statement {
	a, ok := s.(Among)
	if !ok || !a.Ranges {
		return nil
	}
	var out []Statement
	for _, v := range a.Values {
		out = append(out, single(a.Fields[0], a.Not, v))
	}
	return out
}

// single compares a field with one range.
func single(f Field, not bool, v Element) Statement {
	last := lastBefore(v.Key, v.End)
	if last == v.Key {
		return Is{f, not, v.Key}
	}
	if f.kind == typeIPv4 || f.kind == typeIPv6 {
		if p, ok := prefixOf(v); ok {
			return Within{f, not, p}
		}
	}
	return Between{f, not, v.Key, last}
}

// prefixOf is the prefix that a range of addresses is, if it is one.
func prefixOf(v Element) (netip.Prefix, bool) {
	first, _ := netip.AddrFromSlice([]byte(v.Key))
	for bits := range first.BitLen() + 1 {
		p := netip.PrefixFrom(first, bits)
		if p.Masked().Addr() == first && endOf(p) == v.End {
			return p, true
		}
	}
	return netip.Prefix{}, false
}
