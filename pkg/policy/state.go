// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// State is the sum of all Changes so far: the complete state that this host's firewall should have. The zero value is
// empty.
type State struct {
	Endpoints map[string]*Endpoint // by path
	Rules     map[RulesID]*Rules
	Sets      map[SetID]*Set
	Pools     Pools
	Tunnels   Tunnels // not part of Changes
}

// Tunnels is what the firewall must know about the tunnels between hosts. The zero value is a host without tunnels.
type Tunnels struct {
	VXLANPort uint16 // UDP port that a VXLAN device listens on, 0 = none
	IPIP      bool   // there is an IPIP device
	// Hosts are the addresses of the other hosts. Tunnel packets from any other address are dropped, so if there are
	// none, all are.
	Hosts []netip.Addr
	BGP   BGP
}

// BGP restricts who may open BGP sessions with this host: only peers reach the speaker, which would read what strangers
// send.
type BGP struct {
	Port  uint16 // that the host's own speaker listens on, 0 = it doesn't
	Peers []netip.Addr
}

// refuses reports whether a packet would open a session but is not from a peer.
func (b *BGP) refuses(p *Packet) bool {
	return b.Port != 0 && p.Protocol == model.ProtocolTCP && p.DstPort == b.Port &&
		!slices.ContainsFunc(b.Peers, func(a netip.Addr) bool { return a.Unmap().WithZone("") == p.Src })
}

// Set is one set with all its members.
type Set struct {
	Kind    SetKind
	Text    string
	Members map[Member]struct{}
	Nets    []netip.Prefix // as in SetChange
}

// hasAddr reports whether a set of addresses contains a. podsOnly leaves out its networks.
func (s *Set) hasAddr(a netip.Addr, podsOnly bool) bool {
	if _, ok := s.Members[Member{Addr: a}]; ok || podsOnly {
		return ok
	}
	after, _ := slices.BinarySearchFunc(s.Nets, a, func(p netip.Prefix, a netip.Addr) int {
		return cmp.Or(p.Addr().Compare(a), -1) // the first that begins after a
	})
	return after > 0 && s.Nets[after-1].Contains(a)
}

// hasPort reports whether a set of ports contains this port of a.
func (s *Set) hasPort(a netip.Addr, p model.Protocol, port uint16) bool {
	_, ok := s.Members[Member{a, p, port}]
	return ok
}

// Apply applies changes. The error says which change does not fit the state; that one is skipped, and the rest is
// applied.
func (st *State) Apply(c Changes) error {
	if st.Endpoints == nil {
		st.Endpoints, st.Rules, st.Sets = map[string]*Endpoint{}, map[RulesID]*Rules{}, map[SetID]*Set{}
	}
	for path, ep := range c.Endpoints {
		if ep == nil {
			delete(st.Endpoints, path)
		} else {
			st.Endpoints[path] = ep
		}
	}
	for id, rules := range c.Rules {
		if rules == nil {
			delete(st.Rules, id)
		} else {
			st.Rules[id] = rules
		}
	}
	var first error
	for id, change := range c.Sets {
		if err := st.applySet(id, change); err != nil && first == nil {
			first = err
		}
	}
	if c.Pools != nil {
		st.Pools = *c.Pools
	}
	return first
}

// Fits returns an error if a set change can't be applied to the set in the state.
func (st *State) Fits(id SetID, c *SetChange) error {
	set := st.Sets[id]
	switch {
	case c.Gone && set == nil:
		return fmt.Errorf("set %s (%s) is gone, but was not there", id, c.Text)
	case c.Gone:
		return nil
	case c.New && set != nil:
		return fmt.Errorf("set %s (%s) is new, but was there", id, c.Text)
	case c.New:
		set = &Set{}
	case set == nil:
		return fmt.Errorf("set %s (%s) changes, but was not there", id, c.Text)
	}
	for _, m := range c.Removed {
		if _, ok := set.Members[m]; !ok {
			return fmt.Errorf("set %s (%s): %s removed, but was not there", id, c.Text, m)
		}
	}
	for _, m := range c.Added {
		if _, ok := set.Members[m]; ok && !slices.Contains(c.Removed, m) {
			return fmt.Errorf("set %s (%s): %s added, but was there", id, c.Text, m)
		}
	}
	return nil
}

func (st *State) applySet(id SetID, c *SetChange) error {
	if err := st.Fits(id, c); err != nil {
		return err
	}
	if c.Gone {
		delete(st.Sets, id)
		return nil
	}
	if c.New {
		st.Sets[id] = &Set{Kind: c.Kind, Text: c.Text, Members: make(map[Member]struct{}, len(c.Added))}
	}
	set := st.Sets[id]
	set.Nets = c.Nets
	for _, m := range c.Removed {
		delete(set.Members, m)
	}
	for _, m := range c.Added {
		set.Members[m] = struct{}{}
	}
	return nil
}

// String returns the address, with protocol and port if it has them.
func (m Member) String() string {
	if m.Protocol == 0 {
		return m.Addr.String()
	}
	return fmt.Sprintf("%s,%s:%d", m.Addr, m.Protocol, m.Port)
}

// Compare orders members by address, protocol and port.
func (m Member) Compare(o Member) int {
	if c := m.Addr.Compare(o.Addr); c != 0 {
		return c
	}
	if m.Protocol != o.Protocol {
		return int(m.Protocol) - int(o.Protocol)
	}
	return int(m.Port) - int(o.Port)
}

// contains reports whether one of the prefixes contains a.
func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool {
	return len(c.Endpoints) == 0 && len(c.Rules) == 0 && len(c.Sets) == 0 && c.Pools == nil
}
