// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Decide says what is to be done, and what to remember for the next pass.
func Decide(s *Survey, m Memory, looks Looks, now time.Time, allowed Allowance) (Decision, Memory) {
	p := &pass{Survey: s, before: m, looks: looks, now: now, after: Memory{map[string]time.Time{}, map[string]time.Time{}, map[netip.Prefix]spare{}}}
	going := map[string]*host{}
	for _, name := range s.Hosts() {
		if h := s.hosts[name]; p.departs(h) {
			going[name] = h
		}
	}
	stay := map[string]string{} // of the hosts that would go, why one can't yet
	for _, handle := range slices.Sorted(maps.Keys(s.holdings)) {
		h := s.holdings[handle]
		host := going[h.node()]
		why, gone := p.judge(h, host != nil)
		switch {
		case host != nil && why != "" && !s.isTunnel(h):
			stay[host.name] = "handle " + handle + ": " + why
		case host == nil && gone && why == "":
			p.out.Free = append(p.out.Free, s.free(h, now))
		}
		if gone {
			p.out.Candidates += len(h.addrs)
		}
		if gone && why != "" {
			p.keep("handle "+handle, why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(going)) {
		h := going[name]
		for _, k := range h.bare {
			if look, asked := looks.Pods[podOf(k)]; !asked || !look.Absent {
				stay[name] = "endpoint " + k.Path() + ": its pod isn't known to be gone"
			}
		}
		if why := stay[name]; why != "" {
			p.keep("host "+name, why)
		}
		if d := s.departure(h, p.dead(name), stay[name] == "", now); len(d.Steps) > 0 {
			p.out.Hosts = append(p.out.Hosts, d)
		}
	}
	p.spares(going)
	p.out.Excess = s.excess(p.out, allowed)
	return p.out, p.after
}

// pass is one decision under way.
type pass struct {
	*Survey
	before, after Memory
	looks         Looks
	now           time.Time
	out           Decision
}

func (p *pass) keep(what, why string) { p.out.Kept = append(p.out.Kept, Kept{what, why}) }

// departs reports whether the host is to go: its Node has been gone for long, no other Node has its name, and no agent lives
// by it.
func (p *pass) departs(h *host) bool {
	names := h.names()
	if len(names) == 0 || h.metadata.Err != nil {
		return false
	}
	var at time.Time
	for _, name := range names {
		look, asked := p.looks.Nodes[name]
		switch {
		case !asked || !look.Absent: // where it wasn't to be found out, the time begins anew
			return false
		}
		at = look.At
	}
	first, ok := p.before.nodes[h.name]
	if !ok {
		first = at
	}
	p.after.nodes[h.name] = first
	switch {
	case at.Sub(first) < NodeGrace:
		p.keep("host "+h.name, "its Node hasn't been gone for long enough")
		return false
	case h.live:
		p.keep("host "+h.name, "its agent lives")
		return false
	}
	return true
}

// judge says whether a pod that has addresses seems to be gone, and why they stay, "" = they don't.
func (p *pass) judge(h *holding, hostGoes bool) (why string, gone bool) {
	if why := h.never(); why != "" {
		return why, false
	}
	look, asked := p.looks.Pods[h.pod()]
	first, seen := p.before.pods[h.handle]
	switch {
	case !asked:
		return "pod " + h.pod().String() + " isn't known to be gone", false
	case look.Absent:
	case h.uid == "":
		return "pod " + h.pod().String() + " is there, and whether the addresses are its own isn't known", false
	case slices.Contains(look.UIDs, h.uid):
		return "pod " + h.pod().String() + " is there", false
	}
	if !seen {
		first = look.At
	}
	p.after.pods[h.handle] = first
	switch {
	case h.up:
		return "the agent of " + h.node() + " reports its endpoint up", true
	case h.unreported:
		return "the agent of " + h.node() + " reports no endpoints, and so may have it: set EndpointReportingEnabled to true", true
	case !hostGoes && look.At.Sub(first) < PodGrace:
		return "pod " + h.pod().String() + " hasn't been gone, or finished, for long enough", true
	}
	return "", true
}

// dead are the pods' addresses of a host that goes.
func (p *pass) dead(name string) (all []*holding) {
	for _, handle := range slices.Sorted(maps.Keys(p.holdings)) {
		h := p.holdings[handle]
		if h.node() != name {
			continue
		}
		if why, gone := p.judge(h, true); gone && why == "" {
			all = append(all, h)
		}
	}
	return all
}

// spares finds blocks that were empty at two looks, of hosts that keep another.
func (p *pass) spares(going map[string]*host) {
	given := map[string]bool{} // one a pass: the other is what the host keeps
	for _, c := range slices.SortedFunc(maps.Keys(p.blocks), netip.Prefix.Compare) {
		b := p.blocks[c]
		h := p.hosts[b.Affinity]
		if h == nil || going[b.Affinity] != nil || b.EmptySince.IsZero() || given[b.Affinity] ||
			!slices.ContainsFunc(h.affinities, func(o netip.Prefix) bool { return o != c && o.Addr().Is6() == c.Addr().Is6() }) {
			continue
		}
		was, seen := p.before.spare[c]
		if !seen || !was.since.Equal(b.EmptySince) {
			was = spare{since: b.EmptySince, seen: p.now}
		}
		p.after.spare[c] = was
		if p.now.Sub(was.seen) >= PodGrace {
			given[b.Affinity] = true
			p.out.Spare = append(p.out.Spare, giveBack(b))
		}
	}
}
