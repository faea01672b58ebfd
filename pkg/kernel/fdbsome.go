// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// getNeigh asks for one neighbour, or one forwarding entry.
func getNeigh(family uint8, index int, kind uint16, key []byte) *message {
	m := newMessage(unix.RTM_GETNEIGH, 0, neighBody(family, index, 0, 0))
	if family == unix.AF_BRIDGE {
		(*m)[unix.SizeofNlMsghdr+10] = unix.NTF_SELF
	}
	m.attr(kind, key)
	return m
}

// someRemotes sets the entries of a few remotes, and reads each back.
func (p *fabricPass) someRemotes(changed map[plan.RemoteID]*plan.Remote, before map[plan.RemoteID]plan.Remote) error {
	for _, id := range sortedRemotes(changed) {
		r, wanted := p.remotes[id]
		was, known := before[id]
		if !wanted || known && was == r {
			continue
		}
		subject := id.Outer.String()
		index, err := p.deviceOf(id.Tunnel)
		if err != nil {
			return err
		}
		if index == 0 {
			p.problem(subject, fmt.Errorf("this host has no tunnel of kind %s to host %s", id.Tunnel, r.Host))
			continue
		}
		answers, err := p.sock.do(fdbEntry{index, r.MAC, r.Outer}.set(), setNeigh(index, r.Gateway, r.MAC),
			getNeigh(unix.AF_BRIDGE, index, unix.NDA_LLADDR, r.MAC[:]),
			getNeigh(familyOf(r.Gateway), index, unix.NDA_DST, r.Gateway.AsSlice()))
		if err != nil {
			return err
		}
		for i, what := range []string{"set forwarding entry", "set neighbour"} {
			p.wrote(&fabricChange{kchange: kchange{what: what, err: answers[i].err}, subject: subject})
		}
		if !heldFDB(answers[2].data, fdbEntry{index, r.MAC, r.Outer}) || !heldNeigh(answers[3].data, neigh{index: index, addr: r.Gateway, mac: r.MAC}) {
			p.unmet(subject, "neighbour and forwarding entry of host "+r.Host)
			continue
		}
		p.heldRemotes[id] = r
	}
	return nil
}

func heldFDB(data []received, want fdbEntry) bool {
	return slices.ContainsFunc(data, func(m received) bool {
		e, ok := parseFDB(m.body)
		return ok && e == want
	})
}

func heldNeigh(data []received, want neigh) bool {
	return slices.ContainsFunc(data, func(m received) bool {
		n, ok := parseNeigh(m.body)
		permanent := n.state&unix.NUD_PERMANENT != 0
		n.state = 0
		return ok && permanent && n == want
	})
}

// goneRemotes deletes the entries of the former remotes that none of those
// desired has.
func (p *fabricPass) goneRemotes(changed map[plan.RemoteID]*plan.Remote, before map[plan.RemoteID]plan.Remote) error {
	for _, id := range sortedRemotes(changed) {
		was, known := before[id]
		if !known {
			continue
		}
		index, err := p.deviceOf(id.Tunnel)
		if err != nil {
			return err
		}
		now := p.remotes[id] // zero if gone
		if p.heldRemotes[id] == was && now != was {
			delete(p.heldRemotes, id)
		}
		var changes []*fabricChange
		remove := func(what string, m *message) {
			changes = append(changes, &fabricChange{kchange: kchange{what: what, requests: []*message{m}, late: true}, subject: id.Outer.String()})
		}
		if index != 0 && now.MAC != was.MAC && !p.anyChanged(changed, id.Tunnel, func(r plan.Remote) bool { return r.MAC == was.MAC }) {
			remove("delete forwarding entry", fdbEntry{index, was.MAC, was.Outer}.message(unix.RTM_DELNEIGH, 0))
		}
		if index != 0 && now.Gateway != was.Gateway && !p.anyChanged(changed, id.Tunnel, func(r plan.Remote) bool { return r.Gateway == was.Gateway }) {
			remove("delete neighbour", deleteNeigh(index, was.Gateway))
		}
		if len(changes) == 0 {
			continue
		}
		if err := p.send(changes); err != nil {
			return err
		}
		for _, c := range changes {
			if c.err != nil {
				p.problem(c.subject, fmt.Errorf("%s: %w", c.what, c.err))
			}
		}
	}
	return nil
}

// anyChanged says whether one of the changed remotes is so now: a host keeps its MAC
// address, and what follows from it, when its own address changes, and its entries
// have been replaced then.
func (p *fabricPass) anyChanged(changed map[plan.RemoteID]*plan.Remote, kind plan.TunnelKind, is func(plan.Remote) bool) bool {
	for id := range changed {
		if r, ok := p.remotes[id]; ok && id.Tunnel == kind && is(r) {
			return true
		}
	}
	return false
}

func sortedRemotes(m map[plan.RemoteID]*plan.Remote) []plan.RemoteID {
	return slices.SortedFunc(maps.Keys(m), func(a, b plan.RemoteID) int {
		if c := strings.Compare(string(a.Tunnel), string(b.Tunnel)); c != 0 {
			return c
		}
		return a.Outer.Compare(b.Outer)
	})
}

// deviceOf is the index of the VXLAN device of a kind, 0 = there is none.
func (p *fabricPass) deviceOf(kind plan.TunnelKind) (int, error) {
	for _, t := range p.tunnels {
		if t.Kind != kind || kind == plan.IPIP {
			continue
		}
		l, _, err := p.link(t.Device)
		if l.Kind != "vxlan" {
			return 0, err
		}
		return l.Index, err
	}
	return 0, nil
}
