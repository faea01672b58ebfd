// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// maxAlternatives is how many rules one rule with named ports may become. One that would need more can't be expressed.
const maxAlternatives = 256

// Renderer renders policy to rules. Its fields are all that rules depend on besides the policy itself.
type Renderer struct {
	Settings policy.Settings
	Tunnels  Tunnels
	// Known reports whether a set exists.
	Known func(policy.SetID) bool
	// Nets reports whether a set has networks of an IP version, which are in NetSet; nil = none has.
	Nets func(id policy.SetID, version int) bool
	// expand is how many rules may replace a set.
	expand int
	// Fits reports whether the kernel accepts a rule of these statements.
	Fits func(do ...table.Statement) bool
}

func ruleText(i int) string { return fmt.Sprintf(" rule %d", i) }

// RuleComment returns what the comments begin with of the kernel's rules for one rule of a policy or profile, which may be followed by why it
// is reduced.
func RuleComment(id policy.RulesID, rule int) string { return Comment(id.String(), ruleText(rule)) }

// Rules returns the chain of one direction of a policy or profile; r is nil if that doesn't exist.
func (x Renderer) Rules(id policy.RulesID, r *policy.Rules, d model.Direction) table.Chain {
	what := id.String()
	c := table.Chain{Name: RulesChain(id, d), Comment: Comment(what, ", "+string(d))}
	if r == nil || r.Invalid != "" {
		why := ": it is not there"
		if r != nil {
			why = ": " + r.Invalid
		}
		c.Rules = []table.Rule{{Do: []table.Statement{table.Count{}, table.Verdict{Kind: table.Drop}}, Comment: Comment(what, why)}}
		return c
	}
	list := r.Inbound
	if d == model.Outbound {
		list = r.Outbound
	}
	if x.expand = maxExpand; id.PodsOnly() {
		x.Nets = nil
	}
	if len(list) > manyRules {
		x.expand = maxExpandMany
	}
	for i := range list {
		c.Rules = append(c.Rules, x.rule(list[i], func(why string) string {
			return Comment(what, ruleText(i)+why)
		})...)
	}
	return c
}

// rule renders one rule of a policy: one rule of nftables if the IP version doesn't matter, else one for each version.
func (x Renderer) rule(r policy.Rule, name func(why string) string) []table.Rule {
	var out []table.Rule
	for _, version := range [...]int{4, 6} {
		f, ok := r.Family(version)
		if !ok {
			continue
		}
		why := ""
		f, err := f.Reduced()
		f, err = x.present(f, err)
		if err != nil {
			why = ", cannot be expressed: " + err.Error()
		}
		rules := x.family(f, version, name(why))
		if version == 4 && neutral(r) {
			return rules
		}
		out = append(out, rules...)
	}
	return out
}

// neutral reports whether a rule is the same for both IP versions.
func neutral(r policy.Rule) bool {
	if r.IPVersion != 0 {
		return false
	}
	for _, c := range [...]*policy.Criteria{&r.Match, &r.Not} {
		if len(c.SrcSets)+len(c.DstSets)+len(c.SrcNets)+len(c.DstNets)+len(c.SrcPortSets)+len(c.DstPortSets) > 0 ||
			c.Protocol == model.ProtocolICMP || c.Protocol == model.ProtocolICMPv6 {
			return false
		}
	}
	return true
}

// present reduces a rule to the sets that exist. As with policy.Rule.Reduced, a reduced rule drops; err is the reason of an earlier
// reduction.
func (x Renderer) present(r policy.Rule, err error) (policy.Rule, error) {
	for _, c := range [...]*policy.Criteria{&r.Match, &r.Not} {
		for _, sets := range [...]*[]policy.SetID{&c.SrcSets, &c.DstSets} {
			*sets = slices.DeleteFunc(slices.Clone(*sets), func(id policy.SetID) bool { return x.missing(id, &err) })
		}
		for _, side := range [...]struct {
			sets  *[]policy.SetID
			ports *[]model.Port
		}{{&c.SrcPortSets, &c.SrcPorts}, {&c.DstPortSets, &c.DstPorts}} {
			had := len(*side.sets)
			*side.sets = slices.DeleteFunc(slices.Clone(*side.sets), func(id policy.SetID) bool { return x.missing(id, &err) })
			if len(*side.sets) < had && c == &r.Match {
				// The port may be any: it may be in the missing set.
				*side.sets, *side.ports = nil, nil
			}
		}
	}
	alternatives := func(ports []model.Port, sets []policy.SetID) int { return max(1, min(1, len(ports))+len(sets)) }
	if n := alternatives(r.Match.SrcPorts, r.Match.SrcPortSets) * alternatives(r.Match.DstPorts, r.Match.DstPortSets); n > maxAlternatives {
		if err == nil {
			err = fmt.Errorf("%d combinations of named ports: at most %d", n, maxAlternatives)
		}
		r.Match.SrcPorts, r.Match.SrcPortSets, r.Match.DstPorts, r.Match.DstPortSets = nil, nil, nil, nil
	}
	if err != nil {
		r.Action = model.ActionDeny
	}
	return r, err
}

func (x Renderer) missing(id policy.SetID, err *error) bool {
	if x.Known(id) {
		return false
	}
	if *err == nil {
		*err = fmt.Errorf("set %s is not there", id)
	}
	return true
}

// family renders a rule for one IP version.
func (x Renderer) family(r policy.Rule, version int, name string) []table.Rule {
	m := matcher{version: version, protocol: r.Match.Protocol, nets: x.Nets}
	m.addresses(r.Match.SrcSets, r.Match.SrcNets, false, false)
	m.addresses(r.Match.DstSets, r.Match.DstNets, true, false)
	m.addresses(r.Not.SrcSets, r.Not.SrcNets, false, true)
	m.addresses(r.Not.DstSets, r.Not.DstNets, true, true)
	if p := r.Not.Protocol; p != 0 {
		m.add(table.Is{Field: l4proto, Not: true, Value: string([]byte{byte(p)})})
	}
	m.icmp(r.Match, r.Not)
	for _, s := range m.ports(r.Not.SrcPorts, r.Not.SrcPortSets, false) {
		m.add(s.out)
	}
	for _, s := range m.ports(r.Not.DstPorts, r.Not.DstPortSets, true) {
		m.add(s.out)
	}
	if m.never {
		return nil
	}
	var out []table.Rule
	ways := append(m.ways, m.ports(r.Match.SrcPorts, r.Match.SrcPortSets, false), m.ports(r.Match.DstPorts, r.Match.DstPortSets, true))
	for _, way := range product(ways, r.Action == model.ActionLog) {
		for _, match := range expand(slices.Concat(m.match, way), x.expand) {
			out = append(out, x.fit(slices.Concat(m.demands(match, !neutral(r)), match), x.action(r), name))
		}
	}
	return out
}

// fit returns a rule that the kernel accepts. One that is too long drops all that a part of it matches, which is more. The data model has
// bounds that prevent this.
func (x Renderer) fit(match, action []table.Statement, name string) table.Rule {
	r := table.Rule{Do: slices.Concat(match, []table.Statement{table.Count{}}, action), Comment: name}
	if len(r.Do) <= surelyFit || x.Fits(r.Do...) {
		return r
	}
	last := []table.Statement{table.Count{}, table.Verdict{Kind: table.Drop}}
	for !x.Fits(slices.Concat(match, last)...) {
		match = match[:len(match)-1]
	}
	return table.Rule{Do: slices.Concat(match, last), Comment: name + ", cannot be expressed: it is too long"}
}

// surelyFit is how many statements are never too long: each has at most 4 expressions with 128 bytes together, and a few match the IP
// version and the protocol.
const surelyFit = 28

// action returns what a matching rule does.
func (x Renderer) action(r policy.Rule) []table.Statement {
	var do []table.Statement
	if r.LogPrefix != "" || r.Action == model.ActionLog {
		prefix := r.LogPrefix
		if prefix == "" {
			prefix = x.Settings.LogPrefix
		}
		prefix = policy.LogPrefix(prefix)
		do = append(do, table.Log{Prefix: prefix + ": "})
		if x.Settings.FlowLogGroup != 0 {
			do = append(do, table.Log{Prefix: prefix, Group: x.Settings.FlowLogGroup})
		}
	}
	switch r.Action {
	case model.ActionAllow:
		do = append(do, table.Verdict{Kind: table.Goto, Chain: chainAllow})
	case model.ActionNextTier:
		do = append(do, table.Verdict{Kind: table.Goto, Chain: chainNextTier})
	case model.ActionLog:
	default:
		do = append(do, table.Verdict{Kind: table.Drop})
	}
	return do
}
