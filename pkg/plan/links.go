// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// links are the host's own Links, indexed.
type links struct {
	all      []Link
	own      map[netip.Addr]string // link by address
	pending  map[netip.Addr]bool   // those of own that may still turn out to be another host's
	up       map[string]bool
	noSignal map[string]bool       // links without a carrier
	subnets  index[string]         // link by subnet, for links that are up
	networks map[netip.Prefix]bool // addresses with their subnets
	routes   index[[]HostRoute]    // the next hops of each route
	given    Links
	reached  map[netip.Addr]reach // results of reach
}

// newLinks indexes the host's links and routes. If there are several routes to a destination, the first one counts.
func newLinks(given Links) *links {
	l := &links{
		own: map[netip.Addr]string{}, pending: map[netip.Addr]bool{}, up: map[string]bool{}, noSignal: map[string]bool{},
		subnets: newIndex[string](), networks: map[netip.Prefix]bool{}, routes: newIndex[[]HostRoute](),
		given: given, reached: map[netip.Addr]reach{},
	}
	for _, link := range given.Links {
		if isTunnelDevice(link.Name) {
			continue
		}
		l.all = append(l.all, link)
		l.up[link.Name] = link.Up
		l.noSignal[link.Name] = link.NoCarrier
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

// clone copies links, which the caller may change later.
func clone(l Links) Links {
	out := Links{slices.Clone(l.Links), slices.Clone(l.Routes)}
	for i := range out.Links {
		l := &out.Links[i]
		l.Addrs, l.Refused = slices.Clone(l.Addrs), slices.Clone(l.Refused)
		l.Pending, l.Passing = slices.Clone(l.Pending), slices.Clone(l.Passing)
	}
	return out
}

// reach says how the host gets to an address through its own routes. The zero value means not at all.
type reach struct {
	hops []Hop // sorted, without duplicates
	// direct says that the address is in a subnet of one of our links, or of all that lead there.
	direct bool
}

func (r reach) ok() bool { return len(r.hops) > 0 }

func straight(a netip.Addr, device string) reach {
	return reach{hops: []Hop{{Gateway: a, Device: device}}, direct: true}
}

// reach resolves a next hop by the host's own links and routes, as the kernel would. Our routes don't count, so that
// none leads through another.
func (l *links) reach(a netip.Addr) reach {
	r, ok := l.reached[a]
	if !ok {
		r = l.resolve(a)
		l.reached[a] = r
	}
	return r
}

func (l *links) resolve(a netip.Addr) reach {
	if a.Zone() != "" {
		if l.up[a.Zone()] {
			return straight(a.WithZone(""), a.Zone())
		}
		return reach{}
	}
	if _, own := l.own[a]; own && !l.pending[a] || a.IsLinkLocalUnicast() {
		return reach{}
	}
	p := single(a)
	subnet, device, direct := l.subnets.longest(p)
	for to, hops := range l.routes.around(p) {
		if direct && subnet.Bits() >= to.Bits() {
			break
		}
		if r := l.via(hops, a); r.ok() {
			return r
		}
	}
	if direct && !isBroadcast(a, subnet) {
		return straight(a, device)
	}
	return reach{}
}

// isBroadcast reports whether an address is the broadcast address of a subnet, which the kernel rejects as a next hop.
// The lowest address is an ordinary host address since Linux 5.14.
func isBroadcast(a netip.Addr, subnet netip.Prefix) bool {
	return a.Is4() && subnet.Bits() < 31 && a == last(subnet)
}

// via returns how an address is reached through those next hops of a route whose links are up.
func (l *links) via(hops []HostRoute, a netip.Addr) reach {
	by := reach{direct: true}
	for _, r := range hops {
		up, known := l.up[r.Device]
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

// hasCarrier reports whether any of the next hops is on a link with a carrier.
func (l *links) hasCarrier(hops []Hop) bool {
	return slices.ContainsFunc(hops, func(h Hop) bool { return !l.noSignal[h.Device] })
}

// withCarrier returns those next hops that are on a link with a carrier; or all if there are none, so that a single
// link that flaps keeps its routes. The kernel goes on sending to a hop without a carrier (RTNH_F_LINKDOWN, unless
// ignore_routes_with_linkdown is set).
func (l *links) withCarrier(hops []Hop) []Hop {
	if !l.hasCarrier(hops) {
		return hops
	}
	return slices.DeleteFunc(slices.Clone(hops), func(h Hop) bool { return l.noSignal[h.Device] })
}

// hasOwnRoute reports whether the host has a route of its own to a prefix, other than its default route.
func (l *links) hasOwnRoute(p netip.Prefix) bool {
	for to, hops := range l.routes.around(p) {
		if to.Bits() > 0 && l.via(hops, p.Addr()).ok() {
			return true
		}
	}
	return false
}

// uplinks returns the links that lead to other hosts: those marked as such, and those that have this host's address.
func (l *links) uplinks(me [2]netip.Addr) []Link {
	return slices.DeleteFunc(slices.Clone(l.all), func(l Link) bool {
		return !l.Uplink && !slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == me[0] || p.Addr() == me[1] })
	})
}

// distinct sorts next hops and removes duplicates. A hop is OnLink if it is so in any of the routes that lead to it.
func distinct(hops []Hop) []Hop {
	var list []Hop
	for _, h := range hops {
		i, there := slices.BinarySearchFunc(list, h, compareHops)
		if !there {
			list = slices.Insert(list, i, h)
		}
		list[i].OnLink = list[i].OnLink || h.OnLink
	}
	return list
}

func compareHops(a, b Hop) int {
	return cmp.Or(a.Gateway.Compare(b.Gateway), cmp.Compare(a.Device, b.Device))
}
