// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
)

// Kernels that look up ranges in an array publish a new set's array only some time after the rules of the same transaction are in force,
// the later the more is written: until then no packet is found in it. A deny of many networks would let them pass each time one of them
// changes. So a rule with ranges, or that looks up a new set of them, is created in an earlier transaction, where nothing reaches it: at the
// end of its chain, after a rule that returns.

// stage adds the rules of existing chains, and new sets that they may look up. The next plan then only has to delete what they replace.
func (rs *ruleset) stage(b *nfnl.Batch, chains []planned, p *plan) (staged []*set, err error) {
	var todo []planned
	for _, c := range chains {
		if c.chain.render == nil || !c.chain.there || c.fresh || c.def.Hook != (table.Hook{}) {
			continue
		}
		before, after := common(c.chain.have, c.rules)
		if rs.ranges(c.chain, c.rules[before:len(c.rules)-after]) {
			todo = append(todo, c)
		}
	}
	if len(todo) == 0 {
		return nil, nil
	}
	for _, s := range rs.newSets() {
		if s.def.Data != table.TypeVerdict {
			rs.addNewSet(b, s)
			p.sets = append(p.sets, s.def.Name)
			staged = append(staged, s)
		}
	}
	back, err := nfnl.EncodeRule(table.Rule{Do: []table.Statement{table.Verdict{Kind: table.Return}}, Comment: "what follows takes the place of what is above"})
	if err != nil {
		return nil, err
	}
	for _, c := range todo {
		before, _ := common(c.chain.have, c.rules)
		have := c.chain.have
		if n := slices.IndexFunc(have, func(r nfnl.Installed) bool { return r.Hash == back.Hash }); n >= 0 {
			// The rules after it were refused, and something else is wanted by now.
			for _, r := range have[n:] {
				b.DeleteRule(c.name, r.Handle)
			}
			have = have[:n]
		}
		want := make([]nfnl.Hash, 0, len(have)+1+len(c.rules)-before)
		for _, r := range have {
			want = append(want, r.Hash)
		}
		for _, r := range append([]*nfnl.Rule{back}, c.rules[before:]...) {
			want = append(want, r.Hash)
			b.AddRule(c.name, r, 0)
			b.MayCut()
		}
		c.chain.want = want
		p.chains[c.name] = want
	}
	p.staged = true
	return staged, nil
}

// ranges reports whether some of a chain's rules have a set of ranges of their own, or may look up a new one.
func (rs *ruleset) ranges(c *chain, rules []*nfnl.Rule) bool {
	fresh := func(name string) bool {
		s := rs.sets[name]
		return s != nil && s.def.Interval && !s.there
	}
	return len(rules) > 0 && slices.ContainsFunc(c.needs, fresh) || slices.ContainsFunc(rules, (*nfnl.Rule).Ranges)
}

// rangesIn reports whether a new chain has such rules.
func (rs *ruleset) rangesIn(chains []planned) bool {
	return slices.ContainsFunc(chains, func(c planned) bool { return c.fresh && rs.ranges(c.chain, c.rules) })
}
