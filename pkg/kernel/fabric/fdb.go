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
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// fdbEntry returns an entry of a VXLAN device's forwarding table for the library: it sends frames to the MAC address to the host.
func fdbEntry(index int, mac model.MAC, outer netip.Addr) *netlink.Neigh {
	e := rtnl.Neigh(index, outer, mac)
	e.Family, e.Flags = unix.AF_BRIDGE, unix.NTF_SELF
	return e
}

// listNeighs lists the neighbours, or with AF_BRIDGE the forwarding entries, of a device.
func (p *pass) listNeighs(index, family int) ([]netlink.Neigh, error) {
	all, err := rtnl.Dump(func() ([]netlink.Neigh, error) { return p.conn.NeighList(index, family) })
	if err != nil {
		return nil, fmt.Errorf("list neighbours and forwarding entries: %w", err)
	}
	return all, nil
}

// entries compares the neighbours and forwarding entries of the existing tunnels.
func (p *pass) entries() ([]*change, error) {
	var changes []*change
	for _, t := range p.tunnels {
		index, err := p.vxlanIndex(t.Kind)
		if err != nil {
			return nil, err
		}
		if index == 0 {
			continue // a problem of the device, reported there
		}
		some, err := p.entriesOf(t, index)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Device, err)
		}
		changes = append(changes, some...)
	}
	return changes, nil
}

// vxlanIndex returns the index of the VXLAN device of a kind, 0 = there is none.
func (p *pass) vxlanIndex(kind plan.TunnelKind) (int, error) {
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

func (p *pass) entriesOf(t plan.Tunnel, index int) ([]*change, error) {
	fdb, neighs := make(map[model.MAC][]netip.Addr), make(map[netip.Addr]model.MAC)
	entries, err := p.listNeighs(index, unix.AF_BRIDGE)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Flags&unix.NTF_SELF != 0 {
			m := rtnl.MAC(e.HardwareAddr)
			fdb[m] = append(fdb[m], rtnl.Addr(e.IP))
		}
	}
	if entries, err = p.listNeighs(index, unix.AF_UNSPEC); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.State&unix.NUD_PERMANENT != 0 {
			neighs[rtnl.Addr(e.IP)] = rtnl.MAC(e.HardwareAddr)
		}
	}
	fresh := p.had[t.Kind].index != index // then what is missing is no drift
	formerFDB, formerNeighs := make(map[model.MAC]bool), make(map[netip.Addr]bool)
	for id, r := range p.held.remotes {
		if id.Tunnel == t.Kind {
			formerFDB[r.MAC], formerNeighs[r.Gateway] = true, true
			if p.remotes[id] != r {
				delete(p.held.remotes, id)
			}
		}
	}
	wantFDB, wantNeighs := make(map[model.MAC]netip.Addr), make(map[netip.Addr]bool)
	var changes []*change
	for _, r := range p.remotesOf(t.Kind) {
		if other, twice := wantFDB[r.MAC]; twice {
			p.problem(r.Outer.String(), fmt.Errorf("host %s has the MAC address %s of %s on %s: it is not reached through the tunnel", r.Host, r.MAC, other, t.Device))
			continue
		}
		wantFDB[r.MAC], wantNeighs[r.Gateway] = r.Outer, true
		drifted := p.held.remotes[r.RemoteID] == r && !fresh
		if o := fdb[r.MAC]; len(o) != 1 || o[0] != r.Outer {
			changes = append(changes, p.setFDB(index, r, drifted))
		}
		if neighs[r.Gateway] != r.MAC {
			changes = append(changes, p.setNeigh(index, r, drifted))
		}
		p.held.remotes[r.RemoteID] = r
	}
	for _, m := range slices.SortedFunc(maps.Keys(fdb), func(a, b model.MAC) int { return strings.Compare(string(a[:]), string(b[:])) }) {
		if _, wanted := wantFDB[m]; !wanted {
			for _, outer := range fdb[m] {
				changes = append(changes, p.deleteFDB(index, m, outer, p.ready && !fresh && !formerFDB[m]))
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(neighs), netip.Addr.Compare) {
		if !wantNeighs[a] {
			changes = append(changes, p.deleteNeigh(index, a, neighs[a], p.ready && !fresh && !formerNeighs[a]))
		}
	}
	return changes, nil
}

// remotesOf returns the desired remotes of a tunnel, sorted by address.
func (p *pass) remotesOf(kind plan.TunnelKind) (remotes []plan.Remote) {
	for id, r := range p.remotes {
		if id.Tunnel == kind {
			remotes = append(remotes, r)
		}
	}
	slices.SortFunc(remotes, func(a, b plan.Remote) int { return a.Outer.Compare(b.Outer) })
	return remotes
}

// someRemotes returns the changes that some remotes need, based on what was written last.
func (p *pass) someRemotes(changed map[plan.RemoteID]*plan.Remote) (changes []*change) {
	for id := range changed {
		r, wanted := p.remotes[id]
		was, known := p.held.remotes[id]
		if known && wanted && was == r {
			continue
		}
		index, err := p.vxlanIndex(id.Tunnel)
		if err != nil || index == 0 {
			if wanted {
				p.problem(id.Outer.String(), fmt.Errorf("this host has no tunnel of kind %s to host %s: %w", id.Tunnel, r.Host, err))
			}
			continue
		}
		delete(p.held.remotes, id)
		if wanted {
			p.held.remotes[id] = r
			changes = append(changes, p.setFDB(index, r, false), p.setNeigh(index, r, false))
		}
		if !known {
			continue
		}
		// A host keeps its MAC address, and what follows from it, when its own address changes: then its entries are replaced.
		others := p.remotesOf(id.Tunnel)
		if !slices.ContainsFunc(others, func(o plan.Remote) bool { return o.MAC == was.MAC }) {
			changes = append(changes, p.deleteFDB(index, was.MAC, was.Outer, false))
		}
		if !slices.ContainsFunc(others, func(o plan.Remote) bool { return o.Gateway == was.Gateway }) {
			changes = append(changes, p.deleteNeigh(index, was.Gateway, was.MAC, false))
		}
	}
	return changes
}

func (p *pass) setFDB(index int, r plan.Remote, drifted bool) *change {
	return &change{subject: r.Outer.String(), what: fmt.Sprintf("set forwarding entry %s to %s", r.MAC, r.Outer), drifted: drifted,
		make: func() error { return p.conn.NeighSet(fdbEntry(index, r.MAC, r.Outer)) }}
}

func (p *pass) setNeigh(index int, r plan.Remote, drifted bool) *change {
	return &change{subject: r.Outer.String(), what: fmt.Sprintf("set neighbour %s to %s", r.Gateway, r.MAC), drifted: drifted,
		make: func() error { return p.conn.NeighSet(rtnl.Neigh(index, r.Gateway, r.MAC)) }}
}

func (p *pass) deleteFDB(index int, mac model.MAC, outer netip.Addr, drifted bool) *change {
	return &change{subject: outer.String(), what: fmt.Sprintf("delete forwarding entry %s", mac), late: true, drifted: drifted,
		make: func() error { return p.conn.NeighDel(fdbEntry(index, mac, outer)) }}
}

func (p *pass) deleteNeigh(index int, a netip.Addr, mac model.MAC, drifted bool) *change {
	return &change{subject: a.String(), what: fmt.Sprintf("delete neighbour %s", a), late: true, drifted: drifted,
		make: func() error { return p.conn.NeighDel(rtnl.Neigh(index, a, mac)) }}
}
