// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Effect is what the rules of a policy or profile may do.
type Effect int

const (
	decides Effect = iota // allow or deny
	passes                // that, or send a packet on to the profiles
	nothing               // there are none, but in the other direction
)

// EffectOf is the effect in one direction. What isn't there, or isn't valid, denies. One without
// any rules is there to close what it applies to, and people look for it.
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

// ask is a question to a policy or profile, put to packets with a mark, or to all.
type ask struct {
	ID   policy.RulesID
	Mark table.MarkIs // zero = all
}

// Rule is the one that asks, in the direction.
func (a ask) Rule(d model.Direction) table.Rule {
	what := "policy "
	if a.ID.Kind == policy.KindProfile {
		what = "profile "
	}
	r := jump(RulesChain(a.ID, d), "")
	when := ""
	if a.Mark != (table.MarkIs{}) {
		r.Do, when = []table.Statement{a.Mark, r.Do[0]}, ", if nothing is decided"
		if a.Mark.Value != 0 {
			when = ", if a policy says next-tier"
		}
	}
	r.Comment = Comment(what+a.ID.Name, when)
	return r
}

// Choices ask policies and profiles of an unmarked packet: one rule for each, but
// those whose rules are all of the other direction. What none allows comes to their
// end without the mark. Where they are asked last, a packet that they allow doesn't
// come back.
func Choices(v policy.Verdicts, last bool, effect func(policy.RulesID) Effect) []ask {
	undecided := markAllowed | markNextTier
	if last {
		undecided = markNextTier
	}
	out := make([]ask, 0, len(v.Policies)+len(v.Profiles))
	passed := false
	for _, id := range v.Policies {
		does := effect(id)
		if does == nothing {
			continue
		}
		a := ask{ID: id}
		if len(out) > 0 && (passed || !last) {
			a.Mark = table.MarkIs{Mask: undecided}
		}
		passed = passed || does == passes
		out = append(out, a)
	}
	if len(v.Policies) > 0 && !passed {
		return out
	}
	for _, id := range v.Profiles {
		if effect(id) == nothing {
			continue
		}
		a := ask{ID: id}
		switch {
		case len(v.Policies) > 0: // one must have said next-tier
			a.Mark = table.MarkIs{Mask: undecided, Value: markNextTier}
		case len(out) > 0 && !last:
			a.Mark = table.MarkIs{Mask: markAllowed}
		}
		out = append(out, a)
	}
	return out
}

func choiceRules(list []ask, d model.Direction) []table.Rule {
	out := make([]table.Rule, len(list))
	for i, a := range list {
		out[i] = a.Rule(d)
	}
	return out
}

// asks are the rules that ask policies and profiles, for one endpoint. A packet
// that they let pass reaches the end of the chain.
func asks(v policy.Verdicts, d model.Direction) []table.Rule {
	out := append([]table.Rule{unmark()}, choiceRules(Choices(v, false, func(policy.RulesID) Effect { return passes }), d)...)
	last := drop(noneAllows)
	if len(v.Policies)+len(v.Profiles) > 0 {
		last.Do = slices.Insert(last.Do, 0, table.Statement(table.MarkIs{Mask: markAllowed}))
	}
	return append(out, last)
}

const noneAllows = "no policy or profile allows it"
