// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

func (s *slow) rules(id RulesID, things []thing) *Rules {
	counting, r := s.counting(), &Rules{ID: id}
	if id.Kind == KindProfile {
		found := false
		for _, k := range []model.Key{model.ProfileRulesKey{Profile: id.Name}, model.ProfileTagsKey{Profile: id.Name}, model.ProfileLabelsKey{Profile: id.Name}} {
			e, ok := counting[k]
			found = found || ok
			if e.Err != nil && r.Invalid == "" {
				r.Invalid = k.Path() + ": " + e.Err.Error()
			}
		}
		if !found {
			r.Invalid = "it does not exist"
		}
		if v, ok := counting[model.ProfileRulesKey{Profile: id.Name}].Value.(model.Rules); ok && r.Invalid == "" {
			r.Inbound, r.Outbound = s.compile(v.Inbound, things), s.compile(v.Outbound, things)
		}
		return r
	}
	e := counting[model.PolicyKey{Tier: id.Tier, Policy: id.Name}]
	if e.Err != nil {
		r.Invalid = e.Err.Error()
		return r
	}
	if r.Invalid = s.tier(id.Tier).invalid; r.Invalid != "" {
		return r
	}
	if v, ok := e.Value.(model.Policy); ok {
		if v.Applies(model.Inbound) {
			r.Inbound = s.compile(v.Inbound, things)
		}
		if v.Applies(model.Outbound) {
			r.Outbound = s.compile(v.Outbound, things)
		}
	}
	return r
}

func (s *slow) compile(in []model.Rule, things []thing) []Rule {
	var out []Rule
	for _, r := range in {
		out = append(out, Rule{
			Action: r.Action, IPVersion: r.IPVersion, LogPrefix: LogPrefix(r.LogPrefix),
			Match: s.criteria(r.Match, things), Not: s.criteria(r.Not, things),
		})
	}
	return out
}

func (s *slow) criteria(m model.Match, things []thing) Criteria {
	c := Criteria{Protocol: m.Protocol, SrcNets: m.SrcNets, DstNets: m.DstNets, ICMPType: m.ICMPType, ICMPCode: m.ICMPCode}
	for _, side := range []struct {
		tag, text string
		has       bool
		to        *[]SetID
	}{{m.SrcTag, m.SrcSelector, m.HasSrcSelector, &c.SrcSets}, {m.DstTag, m.DstSelector, m.HasDstSelector, &c.DstSets}} {
		if side.tag != "" {
			*side.to = append(*side.to, s.set("tag", side.tag, things))
		}
		if side.has || side.text != "" {
			*side.to = append(*side.to, s.set("selector", side.text, things))
		}
	}
	for _, side := range []struct {
		ports  []model.Port
		ranges *[]model.Port
		sets   *[]SetID
	}{{m.SrcPorts, &c.SrcPorts, &c.SrcPortSets}, {m.DstPorts, &c.DstPorts, &c.DstPortSets}} {
		for _, p := range side.ports {
			if p.Name == "" {
				*side.ranges = append(*side.ranges, p)
			} else if id := s.set("port", p.Name, things); !slices.Contains(*side.sets, id) {
				*side.sets = append(*side.sets, id)
			}
		}
	}
	return c
}

func (s *slow) set(what, of string, things []thing) SetID {
	kind := KindAddrs
	switch what {
	case "selector":
		sel, _ := selector.Parse(of)
		of = sel.String()
	case "port":
		kind = KindPorts
	}
	id := setID(what, of)
	set := &Set{Kind: kind, Text: what + " " + of, Members: map[Member]struct{}{}}
	s.state.Sets[id] = set
	var nets []netip.Prefix
	for _, t := range things {
		if t.invalid != nil {
			continue
		}
		if what == "selector" && t.matches(of) {
			nets = append(nets, t.nets...)
		}
		for _, a := range t.addrs {
			switch {
			case what == "port":
				for _, p := range t.ports {
					if p.Name == of {
						set.Members[Member{a, p.Protocol, p.Port}] = struct{}{}
					}
				}
			case what == "tag" && t.tags[of], what == "selector" && t.matches(of):
				set.Members[Member{Addr: a}] = struct{}{}
			}
		}
	}
	set.Nets = slowCover(nets)
	return id
}

// slowCover is, sorted and once each, those of networks that are in no larger one.
func slowCover(in []netip.Prefix) (out []netip.Prefix) {
	for _, p := range in {
		if !slices.Contains(out, p) && !slices.ContainsFunc(in, func(o netip.Prefix) bool { return o.Bits() < p.Bits() && o.Contains(p.Addr()) }) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return out
}

func (s *slow) pools() {
	var all, masquerade []netip.Prefix
	for key, e := range s.counting() {
		if k, ok := key.(model.PoolKey); ok {
			all = append(all, k.CIDR)
			if v, ok := e.Value.(model.Pool); ok && v.Masquerade {
				masquerade = append(masquerade, k.CIDR)
			}
		}
	}
	s.state.Pools = Pools{slowCover(all), slowCover(masquerade)}
}

// invalid are the paths that something is wrong with.
func (s *slow) invalid() []string {
	paths, counting := map[string]bool{}, s.counting()
	for path, e := range s.entries {
		oneOfKey, odd := false, false
		switch k := e.Key.(type) {
		case model.TierKey:
			v, _ := e.Value.(model.Tier)
			oneOfKey, odd = true, k.Tier == "default" && (v.DefaultAction == "pass" || v.Order != nil && *v.Order != 1000000)
		case model.PolicyKey, model.ProfileRulesKey, model.ProfileTagsKey, model.ProfileLabelsKey, model.PoolKey, model.NetworkSetKey:
			oneOfKey = true
		}
		if e.Err != nil || odd || oneOfKey && counting[e.Key].Path != path {
			paths[path] = true
		}
	}
	things := s.things()
	for _, t := range things {
		if t.local && t.host != nil && t.invalid == nil && s.placed(t, things) == "" {
			paths[t.path] = true
		}
		for _, p := range t.profiles {
			found := false
			for _, k := range []model.Key{model.ProfileRulesKey{Profile: p}, model.ProfileTagsKey{Profile: p}, model.ProfileLabelsKey{Profile: p}} {
				_, ok := counting[k]
				found = found || ok
			}
			if t.local && !found {
				paths[model.ProfileRulesKey{Profile: p}.Path()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(paths))
}
