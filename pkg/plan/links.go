// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
)

// links are Links in the shape in which they are asked.
type links struct {
	all      []Link
	own      map[netip.Addr]string // link by address
	pending  map[netip.Addr]bool   // those of own that may yet be found to be another's
	up       map[string]bool
	silent   map[string]bool       // those without a carrier
	subnets  index[string]         // link by subnet, of those that are up
	networks map[netip.Prefix]bool // addresses with those subnets
	routes   index[[]HostRoute]    // the next hops of each
	given    Links
}

func newLinks(given Links) links {
	l := links{own: map[netip.Addr]string{}, pending: map[netip.Addr]bool{}, up: map[string]bool{}, silent: map[string]bool{}, subnets: newIndex[string](), networks: map[netip.Prefix]bool{}, routes: newIndex[[]HostRoute](), given: given}
	for _, link := range given.Links {
		if isTunnelDevice(link.Name) {
			continue
		}
		l.all = append(l.all, link)
		l.up[link.Name] = link.Up
		l.silent[link.Name] = link.NoCarrier
		for _, p := range link.Addrs {
			if !p.IsValid() {
				continue
			}
			if _, ok := l.own[p.Addr()]; !ok {
				l.own[p.Addr()] = link.Name
				l.pending[p.Addr()] = slices.Contains(link.Pending, p.Addr())
			}
			if !link.Up || p.IsSingleIP() {
				continue
			}
			l.networks[p] = true
			if _, ok := l.subnets.all[p.Masked()]; !ok {
				l.subnets.set(p.Masked(), link.Name)
			}
		}
	}
	var last netip.Prefix
	counts := false
	for _, r := range given.Routes {
		to := r.Destination.Masked()
		if !r.Next || to != last {
			_, twice := l.routes.all[to]
			last, counts = to, !twice
		}
		if counts && to.IsValid() && !isTunnelDevice(r.Device) {
			l.routes.set(to, append(l.routes.all[to], r))
		}
	}
	return l
}

// SetLinks replaces what is known of the host's own links and routes. Of routes
// to one destination the first counts.
func (e *Engine) SetLinks(given Links) {
	if reflect.DeepEqual(given, e.links.given) {
		return
	}
	was := e.links
	e.links = newLinks(clone(given))
	e.dirty.config = true
	if !reflect.DeepEqual(was.own, e.links.own) || !reflect.DeepEqual(was.pending, e.links.pending) {
		e.dirty.neighbours, e.dirty.all = true, true
	}
	for a, before := range e.reached {
		changed := func(h Hop) bool { return was.silent[h.Device] != e.links.silent[h.Device] }
		if now := e.reachNow(a); !now.equal(before) || slices.ContainsFunc(now.hops, changed) {
			e.reached[a] = now
			for p := range e.byGateway[a] {
				e.touch(p)
			}
		}
		e.reportHop(a)
	}
	for _, l := range []*links{&was, &e.links} {
		for p := range l.routes.all {
			e.touchIfLearned(p)
			if _, ok := e.told.Routes[p]; ok {
				e.touch(p)
			}
		}
		for p := range l.subnets.all {
			e.touchIfLearned(p)
		}
	}
	if !maps.Equal(was.networks, e.links.networks) {
		e.touchMine()
	}
}

func (e *Engine) touchIfLearned(p netip.Prefix) {
	if _, ok := e.learned.all[p]; ok {
		e.touch(p)
	}
}

func clone(l Links) Links {
	out := Links{slices.Clone(l.Links), slices.Clone(l.Routes)}
	for i := range out.Links {
		l := &out.Links[i]
		l.Addrs, l.Refused = slices.Clone(l.Addrs), slices.Clone(l.Refused)
		l.Pending, l.Passing = slices.Clone(l.Pending), slices.Clone(l.Passing)
	}
	return out
}

// reach is how the host gets to an address by its own routes; the zero value:
// not at all.
type reach struct {
	hops []Hop // sorted, each once
	// direct: the address is in a subnet of one of our links, or of all by which we go.
	direct bool
}

func (r reach) ok() bool { return len(r.hops) > 0 }

func (r reach) equal(o reach) bool { return r.direct == o.direct && slices.Equal(r.hops, o.hops) }

func straight(a netip.Addr, device string) reach {
	return reach{hops: []Hop{{Gateway: a, Device: device}}, direct: true}
}

// reachNow resolves a next hop by the host's own links and routes, as the kernel
// would; routes of ours don't count, so that none leads through another.
func (e *Engine) reachNow(a netip.Addr) reach {
	if a.Zone() != "" {
		if e.links.up[a.Zone()] {
			return straight(a.WithZone(""), a.Zone())
		}
		return reach{}
	}
	if _, own := e.links.own[a]; own && !e.links.pending[a] || a.IsLinkLocalUnicast() {
		return reach{}
	}
	p := single(a)
	subnet, device, direct := e.links.subnets.longest(p)
	for to, hops := range e.links.routes.around(p) {
		if direct && subnet.Bits() >= to.Bits() {
			break
		}
		if by := e.by(hops, a); by.ok() {
			return by
		}
	}
	if direct && !isBroadcast(a, subnet) {
		return straight(a, device)
	}
	return reach{}
}

// isBroadcast reports whether an address is all hosts' of a subnet, which the kernel takes for no next
// hop. A subnet's lowest address is a host's like any other, to kernels since 5.14.
func isBroadcast(a netip.Addr, subnet netip.Prefix) bool {
	return a.Is4() && subnet.Bits() < 31 && a == last(subnet)
}

// by is the way by those next hops of a route whose links are up.
func (e *Engine) by(hops []HostRoute, a netip.Addr) reach {
	by := reach{direct: true}
	for _, r := range hops {
		up, known := e.links.up[r.Device]
		if known && !up || !known && r.Device == "" {
			continue
		}
		hop := Hop{Gateway: r.Gateway, Device: r.Device, OnLink: r.OnLink}
		if !r.Gateway.IsValid() {
			hop.Gateway = a
		}
		by.hops = append(by.hops, hop)
		by.direct = by.direct && !r.Gateway.IsValid() && r.Destination.Bits() > 0
	}
	by.hops = distinct(by.hops)
	return by
}

// reach is reachNow, remembered while a route needs it.
func (e *Engine) reach(a netip.Addr) reach {
	if r, ok := e.reached[a]; ok {
		return r
	}
	return e.reachNow(a)
}

// heard are those of some next hops that a link with a carrier leads to; all of them where
// there is none, as a single link that comes and goes keeps its routes. The kernel goes on
// sending its share to a hop without one (RTNH_F_LINKDOWN, unless ignore_routes_with_linkdown).
func (e *Engine) heard(hops []Hop) []Hop {
	isSilent := func(h Hop) bool { return e.links.silent[h.Device] }
	if heard := slices.DeleteFunc(slices.Clone(hops), isSilent); len(heard) > 0 {
		return heard
	}
	return hops
}

// uplinks are the links that lead to other hosts: those said to, and what has
// this host's address.
func (e *Engine) uplinks() []Link {
	me := e.hosts[e.self].mine
	return slices.DeleteFunc(slices.Clone(e.links.all), func(l Link) bool {
		return !l.Uplink && !slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == me[0] || p.Addr() == me[1] })
	})
}
