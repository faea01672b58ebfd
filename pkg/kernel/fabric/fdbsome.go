// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// getNeigh asks for one neighbour, or one forwarding entry.
func getNeigh(family uint8, index int, kind uint16, key []byte) *rtnl.Message {
	m := rtnl.NewMessage(unix.RTM_GETNEIGH, 0, rtnl.NeighBody(family, index, 0, 0))
	if family == unix.AF_BRIDGE {
		(*m)[unix.SizeofNlMsghdr+10] = unix.NTF_SELF
	}
	m.Attr(kind, key)
	return m
}

// someRemotes sets the entries of a few remotes, and reads each back.
func (p *pass) someRemotes(changed map[plan.RemoteID]*plan.Remote, before map[plan.RemoteID]plan.Remote) error {
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
		answers, err := p.sock.Do(fdbEntry{index, r.MAC, r.Outer}.set(), rtnl.SetNeigh(index, r.Gateway, r.MAC),
			getNeigh(unix.AF_BRIDGE, index, unix.NDA_LLADDR, r.MAC[:]),
			getNeigh(rtnl.FamilyOf(r.Gateway), index, unix.NDA_DST, r.Gateway.AsSlice()))
		if err != nil {
			return err
		}
		for i, what := range []string{"set forwarding entry", "set neighbour"} {
			p.wrote(&change{Change: rtnl.Change{What: what, Err: answers[i].Err}, subject: subject})
		}
		if !heldFDB(answers[2].Data, fdbEntry{index, r.MAC, r.Outer}) || !heldNeigh(answers[3].Data, rtnl.Neigh{Index: index, Addr: r.Gateway, Mac: r.MAC}) {
			p.unmet(subject, "neighbour and forwarding entry of host "+r.Host)
			continue
		}
		p.heldRemotes[id] = r
	}
	return nil
}

func heldFDB(data []rtnl.Received, want fdbEntry) bool {
	return slices.ContainsFunc(data, func(m rtnl.Received) bool {
		e, ok := parseFDB(m.Body)
		return ok && e == want
	})
}

func heldNeigh(data []rtnl.Received, want rtnl.Neigh) bool {
	return slices.ContainsFunc(data, func(m rtnl.Received) bool {
		n, ok := rtnl.ParseNeigh(m.Body)
		permanent := n.State&unix.NUD_PERMANENT != 0
		n.State = 0
		return ok && permanent && n == want
	})
}

// goneRemotes deletes the entries of the former remotes that none of those
// desired has.
func (p *pass) goneRemotes(changed map[plan.RemoteID]*plan.Remote, before map[plan.RemoteID]plan.Remote) error {
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
		var changes []*change
		remove := func(what string, m *rtnl.Message) {
			changes = append(changes, &change{Change: rtnl.Change{What: what, Requests: []*rtnl.Message{m}, Late: true}, subject: id.Outer.String()})
		}
		if index != 0 && now.MAC != was.MAC && !p.anyChanged(changed, id.Tunnel, func(r plan.Remote) bool { return r.MAC == was.MAC }) {
			remove("delete forwarding entry", fdbEntry{index, was.MAC, was.Outer}.message(unix.RTM_DELNEIGH, 0))
		}
		if index != 0 && now.Gateway != was.Gateway && !p.anyChanged(changed, id.Tunnel, func(r plan.Remote) bool { return r.Gateway == was.Gateway }) {
			remove("delete neighbour", rtnl.DeleteNeigh(index, was.Gateway))
		}
		if len(changes) == 0 {
			continue
		}
		if err := p.send(changes); err != nil {
			return err
		}
		for _, c := range changes {
			if c.Err != nil {
				p.problem(c.subject, fmt.Errorf("%s: %w", c.What, c.Err))
			}
		}
	}
	return nil
}

// anyChanged says whether one of the changed remotes is so now: a host keeps its MAC
// address, and what follows from it, when its own address changes, and its entries
// have been replaced then.
func (p *pass) anyChanged(changed map[plan.RemoteID]*plan.Remote, kind plan.TunnelKind, is func(plan.Remote) bool) bool {
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
func (p *pass) deviceOf(kind plan.TunnelKind) (int, error) {
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
