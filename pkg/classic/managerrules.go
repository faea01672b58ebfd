// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// The lists of an ACL, in the order of a group's parts.
var sides = [...]struct {
	v6, outbound bool
}{{false, false}, {false, true}, {true, false}, {true, true}}

// acls returns the encoded ACLs that follow from an endpoint's groups.
func (m *Manager) acls(e *managed) []byte {
	var lists [len(sides)][][]byte
	for _, id := range slices.Sorted(maps.Keys(e.groups)) {
		for i, part := range m.partsOf(m.groups[id]) {
			if len(part) > 0 {
				lists[i] = append(lists[i], part)
			}
		}
	}
	family := func(in, out [][]byte) []byte {
		comma := []byte(",")
		return fmt.Appendf(nil, `{"inbound":[%s],"outbound":[%s],"inbound_default":"deny","outbound_default":"deny"}`, bytes.Join(in, comma), bytes.Join(out, comma))
	}
	return fmt.Appendf(nil, `{"v4":%s,"v6":%s}`, family(lists[0], lists[1]), family(lists[2], lists[3]))
}

// partsOf returns the encoded rules of a group.
func (m *Manager) partsOf(g *group) *[4]one {
	if g.parts != nil {
		return g.parts
	}
	g.parts = new([4]one)
	for i, side := range sides {
		rules := g.rules.Inbound
		if side.outbound {
			rules = g.rules.Outbound
		}
		var texts [][]byte
		for _, r := range rules {
			for _, r := range m.expand(r, side.v6) {
				texts = append(texts, encode(r))
			}
		}
		g.parts[i] = bytes.Join(texts, []byte(","))
	}
	return g.parts
}

// expand returns the rules of one family for a rule: a reference to a group becomes one rule per address of its
// members.
func (m *Manager) expand(r Rule, v6 bool) []Rule {
	var out []Rule
	add := func(p netip.Prefix) {
		if p.Addr().Is6() == v6 {
			r.Group, r.CIDR = "", p
			out = append(out, r)
		}
	}
	if r.CIDR.IsValid() {
		add(r.CIDR)
		return out
	}
	var addrs []netip.Addr
	if g := m.groups[r.Group]; g != nil {
		for _, of := range g.members {
			addrs = append(addrs, of...)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		add(netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}
