// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// ruleMatch matches rules against a packet.
type ruleMatch struct {
	sets    map[SetID]*Set
	p       *Packet
	missing SetID // a set that the rule refers to and that doesn't exist
	// podsOnly says that no network counts as a member of a set.
	podsOnly bool
}

// rule returns the rule's action for the packet, "" if the rule does not match. why is set if the action isn't the one
// that the rule states.
func (m *ruleMatch) rule(r *Rule) (action model.Action, why string) {
	f, ok := r.Family(versionOf(m.p.Src))
	if !ok {
		return "", ""
	}
	f, err := f.Reduced()
	if err != nil {
		why = "cannot be expressed: " + err.Error()
	}
	m.missing = ""
	if !m.holds(&f.Match) || !m.holdsNone(&f.Not) {
		return "", ""
	}
	if m.missing != "" {
		return model.ActionDeny, "cannot be expressed: set " + string(m.missing) + " is not there"
	}
	return f.Action, why
}

// holds reports whether the packet meets all criteria. It ignores a set that doesn't exist and records it as missing.
func (m *ruleMatch) holds(c *Criteria) bool {
	p := m.p
	if c.Protocol != 0 && c.Protocol != p.Protocol {
		return false
	}
	for _, side := range [...]struct {
		addr netip.Addr
		sets []SetID
		nets []netip.Prefix
	}{{p.Src, c.SrcSets, c.SrcNets}, {p.Dst, c.DstSets, c.DstNets}} {
		for _, id := range side.sets {
			if set := m.set(id); set != nil && !set.hasAddr(side.addr, m.podsOnly) {
				return false
			}
		}
		if len(side.nets) > 0 && !contains(side.nets, side.addr) {
			return false
		}
	}
	for _, side := range m.ports(c) {
		if side.constrain() && !m.inPorts(side, true) {
			return false
		}
	}
	return (c.ICMPType == nil || *c.ICMPType == p.ICMPType) && (c.ICMPCode == nil || *c.ICMPCode == p.ICMPCode)
}

// holdsNone reports whether the packet meets none of the criteria. ICMP type and code count as one.
func (m *ruleMatch) holdsNone(c *Criteria) bool {
	p := m.p
	if c.Protocol != 0 && c.Protocol == p.Protocol {
		return false
	}
	for _, side := range [...]struct {
		addr netip.Addr
		sets []SetID
		nets []netip.Prefix
	}{{p.Src, c.SrcSets, c.SrcNets}, {p.Dst, c.DstSets, c.DstNets}} {
		for _, id := range side.sets {
			if set := m.set(id); set != nil && set.hasAddr(side.addr, m.podsOnly) {
				return false
			}
		}
		if contains(side.nets, side.addr) {
			return false
		}
	}
	for _, side := range m.ports(c) {
		if side.constrain() && m.inPorts(side, false) {
			return false
		}
	}
	return c.ICMPType == nil || *c.ICMPType != p.ICMPType || c.ICMPCode != nil && *c.ICMPCode != p.ICMPCode
}

// portSide is one end of a packet with the ports that a rule requires there.
type portSide struct {
	addr   netip.Addr
	port   uint16
	ranges []model.Port
	sets   []SetID
}

func (s portSide) constrain() bool { return len(s.ranges) > 0 || len(s.sets) > 0 }

func (m *ruleMatch) ports(c *Criteria) [2]portSide {
	return [2]portSide{
		{m.p.Src, m.p.SrcPort, c.SrcPorts, c.SrcPortSets},
		{m.p.Dst, m.p.DstPort, c.DstPorts, c.DstPortSets},
	}
}

// inPorts returns unknown if only a set that doesn't exist could have decided.
func (m *ruleMatch) inPorts(s portSide, unknown bool) bool {
	if slices.ContainsFunc(s.ranges, func(r model.Port) bool { return r.Min <= s.port && s.port <= r.Max }) {
		return true
	}
	in := false
	for _, id := range s.sets {
		if set := m.set(id); set == nil {
			in = unknown
		} else if set.hasPort(s.addr, m.p.Protocol, s.port) {
			return true
		}
	}
	return in
}

func (m *ruleMatch) set(id SetID) *Set {
	set := m.sets[id]
	if set == nil {
		m.missing = id
	}
	return set
}
