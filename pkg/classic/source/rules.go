// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/classic"
	"github.com/calico-go/calico/pkg/model"
)

// export converts a profile's rules to those of a group, which only allow. It leaves out rules that can't be expressed,
// and all rules after one that denies; denies reports that no other group may allow these packets either.
func (s *Source) export(in model.Rules) (out classic.Rules, denies bool, left []error) {
	for _, side := range [...]struct {
		d  model.Direction
		in []model.Rule
		to *[]classic.Rule
	}{{model.Inbound, in.Inbound, &out.Inbound}, {model.Outbound, in.Outbound, &out.Outbound}} {
		for i, r := range side.in {
			switch r.Action {
			case model.ActionLog:
				continue
			case model.ActionAllow:
				rules, err := s.exportRule(r, side.d)
				if err != nil {
					left = append(left, fmt.Errorf("rule %d of %s is left out: %w", i, side.d, err))
				}
				*side.to = append(*side.to, rules...)
				continue
			case model.ActionDeny:
				if i < len(side.in)-1 {
					left = append(left, fmt.Errorf("rule %d of %s denies: those after it, and later profiles, are left out", i, side.d))
				}
				denies = true
			}
			break // a deny, or next-tier, which ends the profile
		}
	}
	return out, denies, left
}

// exportRule converts a rule that allows to rules of a group.
func (s *Source) exportRule(r model.Rule, d model.Direction) ([]classic.Rule, error) {
	m, far, near := r.Match, end{r.Match.SrcTag, r.Match.SrcNets}, end{r.Match.DstTag, r.Match.DstNets}
	if d == model.Outbound {
		far, near = near, far
	}
	icmp := m.Protocol == model.ProtocolICMP || m.Protocol == model.ProtocolICMPv6
	switch {
	case !isZero(r.Not):
		return nil, errors.New("it negates")
	case m.HasSrcSelector, m.HasDstSelector, m.SrcSelector != "", m.DstSelector != "":
		return nil, errors.New("it has a selector: use tags")
	case near.tag != "" || len(near.nets) > 0:
		return nil, errors.New("it is about the endpoint's own address")
	case len(m.SrcPorts) > 0:
		return nil, errors.New("it is about the port of who connects")
	case far.tag != "" && len(far.nets) > 0:
		return nil, errors.New("it has a tag and networks")
	case far.tag != "" && (icmp || r.IPVersion != 0):
		return nil, errors.New("it is of one address family and has a tag: use networks")
	}
	ports := []model.Port{{}}
	if len(m.DstPorts) > 0 {
		ports = nil
	}
	for _, p := range m.DstPorts {
		if p.Name != "" {
			return nil, fmt.Errorf("it has the named port %s", p.Name)
		}
		if p.Max > 0 {
			ports = append(ports, model.Port{Min: max(1, p.Min), Max: p.Max})
		}
	}
	var out []classic.Rule
	add := func(group string, cidr netip.Prefix) {
		for _, p := range ports {
			out = append(out, classic.Rule{Group: group, CIDR: cidr, Protocol: m.Protocol, Port: p, ICMPType: m.ICMPType, ICMPCode: m.ICMPCode})
		}
	}
	if far.tag != "" {
		for _, name := range slices.Sorted(maps.Keys(s.tags)) {
			if slices.Contains(s.tags[name], far.tag) {
				add(GroupID(name), netip.Prefix{})
			}
		}
		return out, nil
	}
	nets := far.nets
	if len(nets) == 0 {
		nets = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	for _, n := range nets {
		v6 := n.Addr().Is6()
		if m.Protocol == model.ProtocolICMP && v6 || m.Protocol == model.ProtocolICMPv6 && !v6 || r.IPVersion == 4 && v6 || r.IPVersion == 6 && !v6 {
			continue
		}
		add("", n)
	}
	return out, nil
}

// end is one end of a connection in a rule.
type end struct {
	tag  string
	nets []netip.Prefix
}

func isZero(m model.Match) bool {
	return m.Protocol == 0 && m.SrcTag == "" && m.DstTag == "" && m.SrcSelector == "" && m.DstSelector == "" && !m.HasSrcSelector && !m.HasDstSelector &&
		len(m.SrcNets)+len(m.DstNets)+len(m.SrcPorts)+len(m.DstPorts) == 0 && m.ICMPType == nil && m.ICMPCode == nil
}
