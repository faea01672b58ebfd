// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// fdbEntry is an entry of a VXLAN device's forwarding table: frames to the MAC
// address go to that host.
type fdbEntry struct {
	index int
	mac   model.MAC
	outer netip.Addr
}

// parseFDB reads struct ndmsg and its attributes; false for what is not an entry
// of a device's own table.
func parseFDB(b []byte) (fdbEntry, bool) {
	if len(b) < unix.SizeofNdMsg || b[0] != unix.AF_BRIDGE || b[10]&unix.NTF_SELF == 0 {
		return fdbEntry{}, false
	}
	e := fdbEntry{index: int(rtnl.Uint32(b[4:]))}
	hasMAC := false
	rtnl.Attributes(b[unix.SizeofNdMsg:], func(kind uint16, data []byte) {
		switch {
		case kind == unix.NDA_DST:
			e.outer = rtnl.Addr(data)
		case kind == unix.NDA_LLADDR && len(data) == len(e.mac):
			e.mac, hasMAC = model.MAC(data), true
		}
	})
	return e, hasMAC
}

// Message is a request about the entry.
func (e fdbEntry) message(kind, flags uint16) *rtnl.Message {
	m := rtnl.NewMessage(kind, flags, rtnl.NeighBody(unix.AF_BRIDGE, e.index, unix.NUD_PERMANENT, unix.NTF_SELF))
	m.Attr(unix.NDA_LLADDR, e.mac[:])
	if e.outer.IsValid() {
		m.AttrAddr(unix.NDA_DST, e.outer)
	}
	return m
}

func (e fdbEntry) set() *rtnl.Message {
	return e.message(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
}

// readFDB reads a device's forwarding table.
func readFDB(s *rtnl.Socket, index int) (map[model.MAC][]netip.Addr, error) {
	table := make(map[model.MAC][]netip.Addr)
	request := rtnl.NewMessage(unix.RTM_GETNEIGH, 0, rtnl.NeighBody(unix.AF_BRIDGE, index, 0, 0))
	err := s.Walk(request, func() { clear(table) }, func(m rtnl.Received) {
		if e, ok := parseFDB(m.Body); ok && e.index == index && m.Kind == unix.RTM_NEWNEIGH {
			table[e.mac] = append(table[e.mac], e.outer)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list forwarding entries: %w", err)
	}
	return table, nil
}

// readPermanent reads a device's permanent neighbours.
func readPermanent(s *rtnl.Socket, index int) (map[netip.Addr]model.MAC, error) {
	table := make(map[netip.Addr]model.MAC)
	request := rtnl.NewMessage(unix.RTM_GETNEIGH, 0, make([]byte, unix.SizeofNdMsg))
	request.Attr32(unix.NDA_IFINDEX, uint32(index))
	err := s.Walk(request, func() { clear(table) }, func(m rtnl.Received) {
		n, ok := rtnl.ParseNeigh(m.Body)
		if ok && n.Index == index && n.State&unix.NUD_PERMANENT != 0 && m.Kind == unix.RTM_NEWNEIGH {
			table[n.Addr] = n.Mac
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	return table, nil
}

// entries compares the neighbours and forwarding entries of the tunnels that are
// there.
func (p *pass) entries() ([]*change, error) {
	var changes []*change
	for _, t := range p.tunnels {
		if t.Kind == plan.IPIP {
			continue
		}
		l, there, err := p.link(t.Device)
		if err != nil {
			return nil, err
		}
		if !there || l.Kind != "vxlan" {
			continue // a problem of the device, reported there
		}
		c, err := p.entriesOf(t, l.Index)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Device, err)
		}
		changes = append(changes, c...)
	}
	return changes, nil
}

func (p *pass) entriesOf(t plan.Tunnel, index int) ([]*change, error) {
	fdb, err := readFDB(p.sock, index)
	if err != nil {
		return nil, err
	}
	neighs, err := readPermanent(p.sock, index)
	if err != nil {
		return nil, err
	}
	var remotes []plan.Remote
	for id, r := range p.remotes {
		if id.Tunnel == t.Kind {
			remotes = append(remotes, r)
		}
	}
	slices.SortFunc(remotes, func(a, b plan.Remote) int { return a.Outer.Compare(b.Outer) })
	wantFDB, wantNeighs := make(map[model.MAC]netip.Addr), make(map[netip.Addr]model.MAC)
	var changes []*change
	fresh := p.hadDevices[t.Kind] != index
	add := func(subject, what string, drifted bool, request *rtnl.Message) *change {
		c := &change{Change: rtnl.Change{What: what, Requests: []*rtnl.Message{request}}, subject: subject, drifted: drifted && !fresh}
		changes = append(changes, c)
		return c
	}
	formerFDB, formerNeighs := make(map[model.MAC]bool), make(map[netip.Addr]bool)
	for id, r := range p.heldRemotes {
		if id.Tunnel == t.Kind {
			formerFDB[r.MAC], formerNeighs[r.Gateway] = true, true
			if p.remotes[id] != r {
				delete(p.heldRemotes, id)
			}
		}
	}
	for _, r := range remotes {
		subject := r.Outer.String()
		held := p.heldRemotes[r.RemoteID] == r
		if other, twice := wantFDB[r.MAC]; twice {
			p.problem(subject, fmt.Errorf("host %s has the MAC address %s of %s on %s: it is not reached through the tunnel", r.Host, r.MAC, other, t.Device))
			continue
		}
		wantFDB[r.MAC] = r.Outer
		wantNeighs[r.Gateway] = r.MAC
		if o := fdb[r.MAC]; len(o) != 1 || o[0] != r.Outer {
			add(subject, fmt.Sprintf("set forwarding entry %s on %s to %s", r.MAC, t.Device, r.Outer), held, fdbEntry{index, r.MAC, r.Outer}.set())
		}
		if neighs[r.Gateway] != r.MAC {
			add(subject, fmt.Sprintf("set neighbour %s on %s to %s", r.Gateway, t.Device, r.MAC), held, rtnl.SetNeigh(index, r.Gateway, r.MAC))
		}
		p.heldRemotes[r.RemoteID] = r
	}
	for _, m := range slices.SortedFunc(maps.Keys(fdb), func(a, b model.MAC) int { return strings.Compare(string(a[:]), string(b[:])) }) {
		if _, wanted := wantFDB[m]; !wanted {
			for _, outer := range fdb[m] {
				add(outer.String(), fmt.Sprintf("delete forwarding entry %s on %s", m, t.Device), p.ready && !formerFDB[m], fdbEntry{index, m, outer}.message(unix.RTM_DELNEIGH, 0)).Late = true
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(neighs), netip.Addr.Compare) {
		if _, wanted := wantNeighs[a]; !wanted {
			add(a.String(), fmt.Sprintf("delete neighbour %s on %s", a, t.Device), p.ready && !formerNeighs[a], rtnl.DeleteNeigh(index, a)).Late = true
		}
	}
	return changes, nil
}
