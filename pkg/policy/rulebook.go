// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// usedRules are Rules in use by an endpoint of this host.
type usedRules struct {
	users int    // number of lists that name them
	told  *Rules // as returned by the last Flush
	sets  []*set // the sets that they refer to, without duplicates
}

// rulebook has the rules of policies and profiles in use.
type rulebook struct {
	sets  *sets
	used  map[RulesID]*usedRules
	dirty map[RulesID]struct{} // to be examined by the next Flush
}

// touch makes the next Flush examine rules if they are in use.
func (b *rulebook) touch(id RulesID) {
	if b.used[id] != nil {
		b.dirty[id] = struct{}{}
	}
}

// use adds n, which may be negative, to the number of lists that name the rules of a.
func (b *rulebook) use(a *applied, n int) {
	for _, ids := range [...][]RulesID{a.in.Policies, a.in.Profiles, a.out.Policies, a.out.Profiles, a.rawIn, a.rawOut, a.preDNAT, a.forwardIn.Policies, a.forwardOut.Policies} {
		for _, id := range ids {
			u := b.used[id]
			if u == nil {
				u = &usedRules{}
				b.used[id] = u
			}
			u.users += n
			if u.users == 0 || u.told == nil {
				b.dirty[id] = struct{}{}
			}
		}
	}
}

// flush returns the new state of the rules that were touched. compile makes them and returns the sets that they need.
func (b *rulebook) flush(compile func(RulesID) (*Rules, []*set)) map[RulesID]*Rules {
	out := map[RulesID]*Rules{}
	for id := range b.dirty {
		u := b.used[id]
		if u == nil {
			continue
		}
		if u.users == 0 {
			if u.told != nil {
				out[id] = nil
			}
			b.sets.release(u.sets)
			delete(b.used, id)
			continue
		}
		rules, sets := compile(id)
		if u.told != nil && rules.equal(u.told) {
			continue
		}
		b.sets.hold(sets)
		b.sets.release(u.sets)
		u.told, u.sets = rules, sets
		out[id] = rules
	}
	clear(b.dirty)
	return out
}

// compile makes the rules of a policy or profile and returns the sets that they need.
func (e *Engine) compile(id RulesID) (*Rules, []*set) {
	c := compiler{needs: e.sets, used: map[*set]struct{}{}}
	rules := &Rules{ID: id}
	if id.Kind == KindProfile {
		p := e.index.profile(id.Name)
		if rules.Invalid = p.problem(); rules.Invalid == "" {
			rules.Inbound, rules.Outbound = c.rules(p.rules.Inbound), c.rules(p.rules.Outbound)
		}
	} else {
		p := e.policies.tiers[id.Tier].all[id.Name]
		rules.Invalid = cmp.Or(p.invalid, p.tier.says.invalid)
		if rules.Invalid == "" && p.in {
			rules.Inbound = c.rules(p.value.Inbound)
		}
		if rules.Invalid == "" && p.out {
			rules.Outbound = c.rules(p.value.Outbound)
		}
	}
	if c.err != nil {
		return &Rules{ID: id, Invalid: c.err.Error()}, nil
	}
	return rules, slices.Collect(maps.Keys(c.used))
}

// compiler collects the sets that rules need.
type compiler struct {
	needs *sets
	used  map[*set]struct{}
	err   error
}

func (c *compiler) rules(in []model.Rule) []Rule {
	if len(in) == 0 {
		return nil
	}
	out := make([]Rule, len(in))
	for i, r := range in {
		out[i] = Rule{
			Action: r.Action, IPVersion: r.IPVersion, LogPrefix: LogPrefix(r.LogPrefix),
			Match: c.criteria(r.Match), Not: c.criteria(r.Not),
		}
	}
	return out
}

func (c *compiler) criteria(m model.Match) Criteria {
	out := Criteria{
		Protocol: m.Protocol, SrcNets: m.SrcNets, DstNets: m.DstNets,
		ICMPType: m.ICMPType, ICMPCode: m.ICMPCode,
	}
	out.SrcSets = c.addresses(m.SrcTag, m.SrcSelector, m.HasSrcSelector)
	out.DstSets = c.addresses(m.DstTag, m.DstSelector, m.HasDstSelector)
	out.SrcPorts, out.SrcPortSets = c.ports(m.SrcPorts)
	out.DstPorts, out.DstPortSets = c.ports(m.DstPorts)
	return out
}

func (c *compiler) addresses(tag, text string, has bool) []SetID {
	var out []SetID
	if tag != "" {
		out = append(out, c.use(c.needs.tag(tag)))
	}
	if has || text != "" {
		s, err := c.needs.selector(text)
		if err != nil {
			c.err = err
			return nil
		}
		out = append(out, c.use(s))
	}
	return out
}

func (c *compiler) ports(in []model.Port) (ranges []model.Port, sets []SetID) {
	for _, p := range in {
		if p.Name == "" {
			ranges = append(ranges, p)
		} else if id := c.use(c.needs.port(p.Name)); !slices.Contains(sets, id) {
			sets = append(sets, id)
		}
	}
	return ranges, sets
}

func (c *compiler) use(s *set) SetID {
	c.used[s] = struct{}{}
	return s.id
}

func (r *Rules) equal(o *Rules) bool {
	return r.ID == o.ID && r.Invalid == o.Invalid &&
		slices.EqualFunc(r.Inbound, o.Inbound, Rule.equal) && slices.EqualFunc(r.Outbound, o.Outbound, Rule.equal)
}

func (r Rule) equal(o Rule) bool {
	return r.Action == o.Action && r.IPVersion == o.IPVersion && r.LogPrefix == o.LogPrefix &&
		r.Match.equal(&o.Match) && r.Not.equal(&o.Not)
}

func (c *Criteria) equal(o *Criteria) bool {
	return c.Protocol == o.Protocol &&
		slices.Equal(c.SrcSets, o.SrcSets) && slices.Equal(c.DstSets, o.DstSets) &&
		slices.Equal(c.SrcNets, o.SrcNets) && slices.Equal(c.DstNets, o.DstNets) &&
		slices.Equal(c.SrcPorts, o.SrcPorts) && slices.Equal(c.DstPorts, o.DstPorts) &&
		slices.Equal(c.SrcPortSets, o.SrcPortSets) && slices.Equal(c.DstPortSets, o.DstPortSets) &&
		sameNumber(c.ICMPType, o.ICMPType) && sameNumber(c.ICMPCode, o.ICMPCode)
}

func sameNumber(a, b *uint8) bool { return a == b || a != nil && b != nil && *a == *b }
