// SPDX-License-Identifier: Apache-2.0

package render

import "github.com/calico-go/calico/pkg/nft/table"

// The kernel walks all sets of a table whenever it creates one or finds one by name: 10,000 anonymous sets take it 13 s. So a rule that
// lists a few values becomes a few rules, and in a policy with many rules, some more.
const (
	maxExpand     = 4
	maxExpandMany = 32
	manyRules     = 500
	// maxOthers is how many statements match the IP version and the protocol, count, log and decide.
	maxOthers = 6
)

// expand replaces lists of values by single ones, as long as that gives at most limit rules, and none that is too long.
func expand(match []table.Statement, limit int) [][]table.Statement {
	out := [][]table.Statement{nil}
	long := len(match) + maxOthers
	for _, s := range match {
		singles := singles(s)
		switch {
		case len(singles) == 0:
			for i := range out {
				out[i] = append(out[i], s)
			}
		case s.(table.Among).Not && len(singles) <= limit && long+len(singles)-1 <= surelyFit:
			long += len(singles) - 1
			for i := range out {
				out[i] = append(out[i], singles...)
			}
		case !s.(table.Among).Not && len(out)*len(singles) <= limit:
			var more [][]table.Statement
			for _, match := range out {
				for _, one := range singles {
					more = append(more, append(match[:len(match):len(match)], one))
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

// singles returns the comparisons equivalent to a list of ranges, none for another statement.
func singles(s table.Statement) []table.Statement {
	a, ok := s.(table.Among)
	if !ok || !a.Ranges {
		return nil
	}
	var out []table.Statement
	for _, v := range a.Values {
		out = append(out, single(a.Fields[0], a.Not, v))
	}
	return out
}

// single compares a field with one range.
func single(f table.Field, not bool, v table.Element) table.Statement {
	last := v.Last()
	if last == v.Key {
		return table.Is{Field: f, Not: not, Value: v.Key}
	}
	if f.Type == table.TypeIPv4 || f.Type == table.TypeIPv6 {
		if p, ok := v.Prefix(); ok {
			return table.Within{Field: f, Not: not, Prefix: p}
		}
	}
	return table.Between{Field: f, Not: not, First: v.Key, Last: last}
}
