// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Effect is what the rules of a policy or profile can do.
type Effect int

const (
	decides Effect = iota // allow or deny
	passes                // allow, deny, or send a packet on to the next tier
	nothing               // there are rules only in the other direction
)

// EffectOf returns the effect in one direction. A missing or invalid policy denies. So does one without any rules: it exists to close its
// endpoints, and people look for it.
func EffectOf(r *policy.Rules, d model.Direction) Effect {
	if r == nil || r.Invalid != "" {
		return decides
	}
	list := r.Inbound
	if d == model.Outbound {
		list = r.Outbound
	}
	switch {
	case len(list) == 0 && len(r.Inbound)+len(r.Outbound) > 0:
		return nothing
	case slices.ContainsFunc(list, func(r policy.Rule) bool { return r.Action == model.ActionNextTier }):
		return passes
	}
	return decides
}

// choices builds the rules that evaluate policies and profiles for an unmarked packet: one for each, except those with rules only in the
// other direction, and one for the end of each tier.
type choices struct {
	direction model.Direction
	effect    func(policy.RulesID) Effect
	// last: nothing is evaluated afterwards. An allowed packet doesn't return.
	last bool
	// deny is the verdict for what a tier denies.
	deny  table.VerdictKind
	asked bool // a policy or profile before may have allowed it
	rules []table.Rule
}

// Choices returns the rules shared by all endpoints with the same policies. A packet that nothing allows reaches their end, or returns,
// without the mark: then the caller counts it for its endpoint and drops it.
func Choices(v policy.Verdicts, d model.Direction, effect func(policy.RulesID) Effect) []table.Rule {
	c := choices{direction: d, effect: effect, last: d == model.Inbound, deny: table.Return}
	c.ask(v)
	return c.rules
}

func (c *choices) ask(v policy.Verdicts) {
	sentOn := false
	for tier, ids := range policy.ByTier(v.Policies) {
		if sentOn {
			c.rules = append(c.rules, nextTier())
		}
		sentOn = false
		for _, id := range ids {
			does := c.effect(id)
			if does == nothing {
				continue
			}
			c.askOne(id, c.undecided(sentOn))
			sentOn = sentOn || does == passes
		}
		if c.end(tier, v.Passes(tier), c.undecided(sentOn)); !sentOn && !v.Passes(tier) {
			return // nothing gets further
		}
	}
	for _, id := range v.Profiles {
		if c.effect(id) != nothing {
			c.askOne(id, c.undecided(false))
		}
	}
}

// undecided matches a packet that nothing has allowed so far, and that no policy of this tier has sent on, if one may have.
func (c *choices) undecided(sentOn bool) table.MarkIs {
	var m table.MarkIs
	if c.asked && !c.last {
		m.Mask = markAllowed
	}
	if sentOn {
		m.Mask |= markNextTier
	}
	return m
}

// askOne evaluates a policy or profile for packets with a mark, or for all.
func (c *choices) askOne(id policy.RulesID, mark table.MarkIs) {
	r := jump(RulesChain(id, c.direction), "")
	when := ""
	if mark.Mask != 0 {
		r.Do, when = []table.Statement{mark, r.Do[0]}, ", if nothing is decided"
	}
	r.Comment = Comment(id.String(), when)
	c.rules, c.asked = append(c.rules, r), true
}

// end is the end of a tier, for a packet that none of its policies decided.
func (c *choices) end(tier string, pass bool, mark table.MarkIs) {
	r := table.Rule{Do: []table.Statement{table.Count{}}, Comment: Comment("end of tier "+tier, ": none of its policies decides, pass")}
	if !pass {
		r.Do = append(r.Do, table.Verdict{Kind: c.deny})
		r.Comment = Comment("end of tier "+tier, ": none of its policies decides, deny")
	}
	if mark.Mask != 0 {
		r.Do = slices.Insert(r.Do, 0, table.Statement(mark))
	}
	c.rules = append(c.rules, r)
}

// nextTier clears the mark of the tier before.
func nextTier() table.Rule {
	return table.Rule{Do: []table.Statement{table.MarkSet{Clear: markNextTier}}, Comment: "the next tier"}
}

// asks returns the rules that evaluate policies and profiles for one endpoint. A packet that they let pass reaches the end of the chain.
func asks(v policy.Verdicts, d model.Direction) []table.Rule {
	c := choices{direction: d, effect: func(policy.RulesID) Effect { return passes }, deny: table.Drop, rules: []table.Rule{unmark()}}
	c.ask(v)
	last := drop(noneAllows)
	if c.asked {
		last.Do = slices.Insert(last.Do, 0, table.Statement(table.MarkIs{Mask: markAllowed}))
	}
	return append(c.rules, last)
}

const noneAllows = "no policy or profile allows it"
