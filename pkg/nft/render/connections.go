// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/nft/table"
)

// When the kernel counts a new connection for an interface, it walks all those counted. If there may be many, one in 16 is counted, so that
// the list is a sixteenth as long. With a hundred samples or more the bound is accurate to a few percent.
const oneIn, sampledFrom = 16, 1600

// CountedIn returns the set that counts the connections of an interface that may begin most of them, and the number to put there.
func CountedIn(most int) (set string, n int) {
	if most < sampledFrom {
		return SetConnections, most
	}
	return SetSampled, most / oneIn
}

// BoundSets returns the sets that bound how many connections workloads may begin.
func BoundSets() []table.Set {
	return []table.Set{
		{Name: SetConnections, Key: []table.Type{table.TypeInterface}, Bounds: true, Comment: "how many connections the endpoint may begin"},
		{Name: SetSampled, Key: []table.Type{table.TypeInterface}, Bounds: true, Comment: "how many the endpoint may begin, where one in 16 is counted"},
		{Name: setNext, Key: []table.Type{table.TypeInterface}, Expires: time.Hour, Comment: "whose next connection is counted, as there were too many"},
		{Name: setFull, Key: []table.Type{table.TypeInterface}, Expires: time.Second, Comment: "whose connections aren't counted for a moment, as there are too many"},
		{Name: SetReached, Key: []table.Type{table.TypeInterface}, Expires: 5 * time.Minute, Comment: "whose endpoint had too many connections of late"},
	}
}

// bounded checks, before each of these rules accepts the first packet of a connection, whether there are too many.
func bounded(u Uses, accepts []table.Rule) []table.Rule {
	if !u.Bounds {
		return accepts
	}
	var out []table.Rule
	for _, r := range accepts {
		match := slices.DeleteFunc(slices.Clone(r.Do), func(s table.Statement) bool {
			switch s.(type) {
			case table.MarkSet, table.Verdict, table.Count, table.Reject:
				return true
			}
			return false
		})
		out = append(out, table.Rule{Do: append(match, table.Begins{}, table.Verdict{Kind: table.Jump, Chain: chainConnections})}, r)
	}
	return out
}

// connections drop the first packet of a connection if the interface has reached its bound. The kernel walks the counted connections, so it
// doesn't count again for a second after there were too many: otherwise the bound would cost more than it saves. The first packet after
// that is a sample in place of the dropped one: otherwise, of those that retry each second, 15 more would pass.
func (x Renderer) connections() []table.Chain {
	in := []table.Field{inName}
	is := func(set string) table.Statement { return table.InSet{Fields: in, Set: set} }
	add := func(set string) table.Rule { return table.Rule{Do: []table.Statement{table.Add{Fields: in, Set: set}}} }
	full, toFull := drop("too many connections, as a moment ago"), table.Verdict{Kind: table.Goto, Chain: chainFull}
	full.Do = append([]table.Statement{is(setFull)}, full.Do...)
	over := []table.Rule{add(setFull), add(setNext), add(SetReached)}
	if x.Settings.FlowLogGroup != 0 {
		over = append(over, table.Rule{Do: []table.Statement{table.Log{Prefix: x.Settings.LogPrefix, Group: x.Settings.FlowLogGroup}}})
	}
	return []table.Chain{
		{Name: chainConnections, Comment: "what begins a connection: does the endpoint have too many", Rules: []table.Rule{
			full, {Do: []table.Statement{is(SetConnections), toFull}},
			{Do: []table.Statement{table.OneIn{Packets: oneIn}, is(SetSampled), toFull}},
			{Do: []table.Statement{is(setNext), is(SetSampled), toFull}}, {Do: []table.Statement{table.Remove{Fields: in, Set: setNext}}},
		}},
		{Name: chainFull, Comment: "the endpoint has as many connections as it may", Rules: append(over, drop("too many connections"))},
	}
}
