// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Decide returns what to do, and what to remember for the next pass.
func Decide(s *Survey, m Memory, looks Looks, now time.Time, allowed Allowance) (Decision, Memory) {
	p := &pass{Survey: s, before: m, looks: looks, now: now, after: Memory{map[string]time.Time{}, map[string]time.Time{}, map[netip.Prefix]spare{}}}
	going := map[string]*host{}
	for _, name := range s.Hosts() {
		if h := s.hosts[name]; p.departs(h) {
			going[name] = h
		}
	}
	stay := map[string]string{} // for hosts that should go, why one can't yet
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

// pass is one decision in progress.
type pass struct {
	*Survey
	before, after Memory
	looks         Looks
	now           time.Time
	out           Decision
}

func (p *pass) keep(what, why string) { p.out.Kept = append(p.out.Kept, Kept{what, why}) }

// departs reports whether the host should be removed: its Node has been gone long enough, no other Node has its name,
// and no agent is alive under it.
func (p *pass) departs(h *host) bool {
	names := h.names()
	if len(names) == 0 || h.metadata.Err != nil {
		return false
	}
	var at time.Time
	for _, name := range names {
		look, asked := p.looks.Nodes[name]
		switch {
		case !asked || !look.Absent: // without an answer, the time starts anew
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

// judge reports whether a pod with addresses seems to be gone, and why they stay, "" if they don't.
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

// dead returns the pods' addresses of a host that is being removed.
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

// spares finds blocks that were empty in two passes, of hosts that keep another block.
func (p *pass) spares(going map[string]*host) {
	given := map[string]bool{} // one per pass: the host keeps the other
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
