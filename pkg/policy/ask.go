// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/calico-go/calico/pkg/model"

// asks reports whether an endpoint's policies and profiles allow the packet.
func (e *evaluation) asks(ep *Endpoint, d model.Direction, v Verdicts) bool {
	allowed, decided := e.policies(ep, d, v)
	if decided {
		return allowed
	}
	for _, id := range v.Profiles {
		switch e.rules(ep, d, id, false) {
		case model.ActionAllow:
			return true
		case model.ActionDeny:
			return false
		}
	}
	e.of(ep, d, "no profile decides: drop")
	return false
}

// policies evaluates an endpoint's policies, tier by tier.
func (e *evaluation) policies(ep *Endpoint, d model.Direction, v Verdicts) (allowed, decided bool) {
	for tier, ids := range ByTier(v.Policies) {
		switch e.tier(ep, d, ids, false) {
		case model.ActionAllow:
			return true, true
		case model.ActionDeny:
			return false, true
		case model.ActionNextTier:
			continue
		}
		if !v.Passes(tier) {
			e.of(ep, d, "end of tier %s, policies apply and none decides: drop", tier)
			return false, true
		}
		e.of(ep, d, "end of tier %s, none of its policies decides: pass", tier)
	}
	return false, false
}

// tier evaluates the policies of one tier. It returns "" if none of them decides.
func (e *evaluation) tier(ep *Endpoint, d model.Direction, ids []RulesID, untracked bool) model.Action {
	for _, id := range ids {
		if action := e.rules(ep, d, id, untracked); action != "" {
			return action
		}
	}
	return ""
}

// rules evaluates one policy or profile. It returns "" if it does not decide.
func (e *evaluation) rules(ep *Endpoint, d model.Direction, id RulesID, untracked bool) model.Action {
	step := Step{Endpoint: ep.Path, Direction: d, Rules: id, Rule: -1, Untracked: untracked}
	all := e.st.Rules[id]
	if all == nil || all.Invalid != "" {
		step.What = "deny: it is not there"
		if all != nil {
			step.What = "deny: " + all.Invalid
		}
		e.r.Trail = append(e.r.Trail, step)
		return model.ActionDeny
	}
	rules := all.Inbound
	if d == model.Outbound {
		rules = all.Outbound
	}
	match := ruleMatch{sets: e.st.Sets, p: &e.p, podsOnly: id.PodsOnly()}
	for i := range rules {
		action, why := match.rule(&rules[i])
		if action == "" {
			continue
		}
		step.Rule, step.What = i, string(action)
		if why != "" {
			step.What += ": " + why
		}
		if prefix := rules[i].LogPrefix; prefix != "" || action == model.ActionLog {
			if prefix == "" {
				prefix = e.s.LogPrefix
			}
			e.r.Logged = append(e.r.Logged, prefix)
			if action != model.ActionLog {
				step.What += ", logged"
			}
			step.What += " as " + prefix
		}
		e.r.Trail = append(e.r.Trail, step)
		if action != model.ActionLog {
			return action
		}
	}
	return ""
}
