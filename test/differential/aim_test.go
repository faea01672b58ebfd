// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// aimed is a packet for a rule that an endpoint goes by: one that it matches, or
// nearly. ok is false where there is none.
func (c chance) aimed(st *policy.State) (p probe, ok bool) {
	var endpoints []*policy.Endpoint
	for _, path := range slices.Sorted(maps.Keys(st.Endpoints)) {
		if ep := st.Endpoints[path]; ep.Dropped == "" && (ep.Interface != "" || ep.Wildcard) && ep.Interface != missingPort && ep.Interface != policy.MetricsInterface {
			endpoints = append(endpoints, ep)
		}
	}
	if len(endpoints) == 0 {
		return p, false
	}
	ep := one(c, endpoints...)
	direction := one(c, model.Inbound, model.Outbound)
	rule, ok := c.ruleOf(st, ep, direction)
	if !ok {
		return p, false
	}
	version := cmp.Or(rule.IPVersion, c.version())
	switch rule.Match.Protocol {
	case model.ProtocolICMP:
		version = 4
	case model.ProtocolICMPv6:
		version = 6
	}
	p.Src, p.Dst = c.addr(version), c.addr(version)
	c.protocols(&p)
	if rule.Match.Protocol != 0 {
		p.Protocol = rule.Match.Protocol
		c.details(&p)
	}
	c.meet(st, &p, &rule.Match)
	if c.in(2) {
		c.meet(st, &p, &rule.Not)
	}
	return p, c.place(st, &p, ep, direction)
}

// ruleOf is one of the rules of an endpoint for one direction.
func (c chance) ruleOf(st *policy.State, ep *policy.Endpoint, d model.Direction) (policy.Rule, bool) {
	v, raw := ep.Inbound, slices.Concat(ep.UntrackedInbound, ep.PreDNAT)
	if d == model.Outbound {
		v, raw = ep.Outbound, ep.UntrackedOutbound
	}
	var all []policy.Rule
	for _, id := range slices.Concat(v.Policies, v.Profiles, raw) {
		if rules := st.Rules[id]; rules != nil && d == model.Inbound {
			all = append(all, rules.Inbound...)
		} else if rules != nil {
			all = append(all, rules.Outbound...)
		}
	}
	if len(all) == 0 {
		return policy.Rule{}, false
	}
	return one(c, all...), true
}

// meet makes a packet meet criteria, or miss some by a little.
func (c chance) meet(st *policy.State, p *probe, m *policy.Criteria) {
	for _, side := range [...]struct {
		addr     *netip.Addr
		port     *uint16
		nets     []netip.Prefix
		sets     []policy.SetID
		ports    []model.Port
		portSets []policy.SetID
	}{
		{&p.Src, &p.SrcPort, m.SrcNets, m.SrcSets, m.SrcPorts, m.SrcPortSets},
		{&p.Dst, &p.DstPort, m.DstNets, m.DstSets, m.DstPorts, m.DstPortSets},
	} {
		if len(side.nets) > 0 {
			*side.addr = c.within(one(c, side.nets...), *side.addr)
		}
		if len(side.sets) > 0 {
			if in := c.member(st, one(c, side.sets...), p, *side.addr); in.Addr.IsValid() {
				*side.addr = in.Addr
			}
		}
		if len(side.ports) > 0 && p.Protocol.HasPorts() {
			r := one(c, side.ports...)
			*side.port = one(c, r.Min, r.Max, r.Min-1, r.Max+1, r.Min+uint16(c.IntN(int(r.Max-r.Min)+1)))
		}
		if len(side.portSets) > 0 && c.in(2) {
			if in := c.member(st, one(c, side.portSets...), p, *side.addr); in.Addr.IsValid() {
				*side.addr, *side.port = in.Addr, in.Port
			}
		}
	}
	if p.icmp() && m.ICMPType != nil {
		p.ICMPType = *m.ICMPType
		if m.ICMPCode != nil {
			p.ICMPCode = *m.ICMPCode ^ one[uint8](c, 0, 0, 1)
		}
	}
}

// within is an address of the universe in a prefix, or the one given.
func (c chance) within(in netip.Prefix, other netip.Addr) netip.Addr {
	for range 20 {
		if a := c.addr(versionOf(other)); in.Contains(a) {
			return a
		}
	}
	return other
}

// member is one of a set that could be in a packet, zero where none could.
func (c chance) member(st *policy.State, id policy.SetID, p *probe, like netip.Addr) policy.Member {
	set := st.Sets[id]
	if set == nil {
		return policy.Member{}
	}
	var all []policy.Member
	for m := range set.Members {
		if m.Addr.Is4() == like.Is4() && (m.Protocol == 0 || m.Protocol == p.Protocol) {
			all = append(all, m)
		}
	}
	for _, p := range set.Nets {
		if p.Addr().Is4() == like.Is4() {
			all = append(all, policy.Member{Addr: c.within(p, like)})
		}
	}
	if len(all) == 0 {
		return policy.Member{}
	}
	slices.SortFunc(all, policy.Member.Compare)
	return one(c, all...)
}

// place sends a packet past the endpoint: its own address is the endpoint's, and
// it comes from where the source is.
func (c chance) place(st *policy.State, p *probe, ep *policy.Endpoint, d model.Direction) bool {
	version := versionOf(p.Src)
	own := hostAddrs(version)
	if ep.Workload {
		own = slices.DeleteFunc(slices.Clone(ep.Addrs), func(a netip.Addr) bool { return versionOf(a) != version })
	}
	if len(own) == 0 {
		return false
	}
	mine := &p.Dst
	if d == model.Outbound {
		mine = &p.Src
	}
	if !slices.Contains(own, *mine) {
		*mine = one(c, own...)
	}
	to := routes(st)
	for _, n := range ep.NAT {
		// To its address outside, from another or from itself.
		if n.IntIP == p.Dst && c.in(4) || n.IntIP == p.Src && c.in(8) {
			p.Dst = n.ExtIP
		}
	}
	p.In = outOf(to, p.Src)
	switch {
	case ep.Wildcard && d == model.Inbound:
	case ep.Workload == (d == model.Outbound):
		p.In = ep.Interface
	case !ep.Workload:
		p.In = ""
	}
	p.MAC = macFor(st, p.In)
	return true
}

// macFor is the MAC address by which a packet may come from an interface.
func macFor(st *policy.State, name string) model.MAC {
	if name == "" {
		return model.MAC{}
	}
	for _, ep := range st.Endpoints {
		if ep.Workload && ep.Dropped == "" && ep.Interface == name && !ep.MAC.IsZero() {
			return ep.MAC
		}
	}
	return macOf(name, true)
}
