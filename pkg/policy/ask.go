// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// asks reports whether an endpoint's policies and profiles let the packet pass.
func (e *evaluation) asks(ep *Endpoint, d model.Direction, v Verdicts) bool {
	next := len(v.Policies) == 0
policies:
	for _, id := range v.Policies {
		switch e.rules(ep, d, id, false) {
		case model.ActionAllow:
			return true
		case model.ActionDeny:
			return false
		case model.ActionNextTier:
			next = true
			break policies
		}
	}
	if !next {
		e.of(ep, d, "policies apply and none decides: drop")
		return false
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

// rules asks one policy or profile; "" = it takes no decision.
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
	for i := range rules {
		action, why := e.rule(&rules[i])
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

// rule is what one rule does with the packet, "" = it does not match. why is set
// where that isn't what the rule says.
func (e *evaluation) rule(r *Rule) (action model.Action, why string) {
	f, ok := r.Family(versionOf(e.p.Src))
	if !ok {
		return "", ""
	}
	f, err := f.Reduced()
	if err != nil {
		why = "cannot be expressed: " + err.Error()
	}
	missing := SetID("")
	if !e.holds(&f.Match, &missing) || !e.holdsNone(&f.Not, &missing) {
		return "", ""
	}
	if missing != "" {
		return model.ActionDeny, "cannot be expressed: set " + string(missing) + " is not there"
	}
	return f.Action, why
}

// holds reports whether the packet meets all criteria. A set that is not there
// is left out and named in missing.
func (e *evaluation) holds(c *Criteria, missing *SetID) bool {
	p := &e.p
	if c.Protocol != 0 && c.Protocol != p.Protocol {
		return false
	}
	for _, side := range [...]struct {
		addr netip.Addr
		sets []SetID
		nets []netip.Prefix
	}{{p.Src, c.SrcSets, c.SrcNets}, {p.Dst, c.DstSets, c.DstNets}} {
		for _, id := range side.sets {
			if set := e.set(id, missing); set != nil && !set.HasAddr(side.addr) {
				return false
			}
		}
		if len(side.nets) > 0 && !contains(side.nets, side.addr) {
			return false
		}
	}
	for _, side := range e.ports(c) {
		if side.constrain() && !e.inPorts(side, missing, true) {
			return false
		}
	}
	return (c.ICMPType == nil || *c.ICMPType == p.ICMPType) && (c.ICMPCode == nil || *c.ICMPCode == p.ICMPCode)
}

// holdsNone reports whether the packet meets none of the criteria, ICMP type
// and code counting as one.
func (e *evaluation) holdsNone(c *Criteria, missing *SetID) bool {
	p := &e.p
	if c.Protocol != 0 && c.Protocol == p.Protocol {
		return false
	}
	for _, side := range [...]struct {
		addr netip.Addr
		sets []SetID
		nets []netip.Prefix
	}{{p.Src, c.SrcSets, c.SrcNets}, {p.Dst, c.DstSets, c.DstNets}} {
		for _, id := range side.sets {
			if set := e.set(id, missing); set != nil && set.HasAddr(side.addr) {
				return false
			}
		}
		if contains(side.nets, side.addr) {
			return false
		}
	}
	for _, side := range e.ports(c) {
		if side.constrain() && e.inPorts(side, missing, false) {
			return false
		}
	}
	return c.ICMPType == nil || *c.ICMPType != p.ICMPType || c.ICMPCode != nil && *c.ICMPCode != p.ICMPCode
}

// portSide is one end of a packet and the ports that are asked of it.
type portSide struct {
	addr   netip.Addr
	port   uint16
	ranges []model.Port
	sets   []SetID
}

func (s portSide) constrain() bool { return len(s.ranges) > 0 || len(s.sets) > 0 }

func (e *evaluation) ports(c *Criteria) [2]portSide {
	return [2]portSide{
		{e.p.Src, e.p.SrcPort, c.SrcPorts, c.SrcPortSets},
		{e.p.Dst, e.p.DstPort, c.DstPorts, c.DstPortSets},
	}
}

// inPorts gives unknown where only a set that is not there could have decided.
func (e *evaluation) inPorts(s portSide, missing *SetID, unknown bool) bool {
	if slices.ContainsFunc(s.ranges, func(r model.Port) bool { return r.Min <= s.port && s.port <= r.Max }) {
		return true
	}
	in := false
	for _, id := range s.sets {
		if set := e.set(id, missing); set == nil {
			in = unknown
		} else if set.HasPort(s.addr, e.p.Protocol, s.port) {
			return true
		}
	}
	return in
}

func (e *evaluation) set(id SetID, missing *SetID) *Set {
	set := e.st.Sets[id]
	if set == nil {
		*missing = id
	}
	return set
}
