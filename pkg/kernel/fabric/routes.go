// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// route is a route of the main table, with all its next hops.
type route struct {
	dst      netip.Prefix
	kind     uint8 // RTN_UNICAST, …
	protocol uint8
	metric   uint32
	source   netip.Addr
	hops     []nextHop // sorted; only for RTN_UNICAST
}

// nextHop is a next hop as the kernel has it.
type nextHop struct {
	gateway netip.Addr // invalid = the link itself; an IPv4 route may have an IPv6 gateway
	index   int
	onLink  bool
	weight  int // minus one
}

func (r route) equal(o route) bool {
	return r.dst == o.dst && r.kind == o.kind && r.protocol == o.protocol && r.metric == o.metric &&
		r.source == o.source && slices.Equal(r.hops, o.hops)
}

// within reports whether the route leads only where the other leads too. A blackhole leads nowhere at all: without it packets would take
// the default route.
func (r route) within(o route) bool {
	return r.kind == unix.RTN_BLACKHOLE || r.kind == o.kind && !slices.ContainsFunc(r.hops, func(h nextHop) bool { return !slices.Contains(o.hops, h) })
}

func compareHops(a, b nextHop) int {
	return cmp.Or(a.gateway.Compare(b.gateway), cmp.Compare(a.index, b.index))
}

// netlink returns the route for the library.
func (r route) netlink() *netlink.Route {
	out := &netlink.Route{Dst: rtnl.IPNet(r.dst), Type: int(r.kind), Protocol: netlink.RouteProtocol(r.protocol), Priority: int(r.metric), Src: rtnl.IP(r.source)}
	hops := make([]*netlink.NexthopInfo, len(r.hops))
	for i, h := range r.hops {
		hops[i] = h.netlink(r.dst.Addr().Is4())
	}
	if len(hops) == 1 && hops[0].Hops == 0 {
		h := hops[0]
		out.LinkIndex, out.Gw, out.Via, out.Flags = h.LinkIndex, h.Gw, h.Via, h.Flags
		if out.Gw == nil && out.Via == nil && r.dst.Addr().Is4() {
			out.Scope = unix.RT_SCOPE_LINK
		}
	} else {
		out.MultiPath = hops
	}
	return out
}

func (h nextHop) netlink(v4 bool) *netlink.NexthopInfo {
	out := &netlink.NexthopInfo{LinkIndex: h.index, Hops: h.weight}
	if h.onLink {
		out.Flags = unix.RTNH_F_ONLINK
	}
	switch {
	case !h.gateway.IsValid():
	case v4 && h.gateway.Is6():
		out.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: rtnl.IP(h.gateway)}
	default:
		out.Gw = rtnl.IP(h.gateway)
	}
	return out
}

// routeOf converts a route of the library.
func routeOf(n netlink.Route) route {
	r := route{dst: rtnl.Prefix(n.Dst), kind: uint8(n.Type), protocol: uint8(n.Protocol), metric: uint32(n.Priority), source: rtnl.Addr(n.Src)}
	if r.kind != unix.RTN_UNICAST {
		return r // for IPv6 the kernel names the loopback
	}
	hops := n.MultiPath
	if len(hops) == 0 && n.LinkIndex != 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: n.LinkIndex, Gw: n.Gw, Via: n.Via, Flags: n.Flags}}
	}
	for _, h := range hops {
		r.hops = append(r.hops, nextHop{rtnl.GatewayOf(h.Gw, h.Via), h.LinkIndex, h.Flags&unix.RTNH_F_ONLINK != 0, h.Hops})
	}
	slices.SortFunc(r.hops, compareHops)
	return r
}

// readRoutes reads the main table's routes of both families, of one protocol, or of all if it is 0.
func readRoutes(c *rtnl.Conn, protocol uint8) (routes []route, err error) {
	mask := netlink.RT_FILTER_TABLE
	if protocol != 0 {
		mask |= netlink.RT_FILTER_PROTOCOL
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		err := c.Routes(family, netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: netlink.RouteProtocol(protocol)}, mask, func(n netlink.Route) {
			routes = append(routes, routeOf(n))
		})
		if err != nil {
			return nil, err
		}
	}
	return routes, nil
}

// resolve returns the route as the kernel should have it now. lacks says which part isn't possible; if ok is false, nothing is.
func (p *pass) resolve(want plan.Route) (r route, ok bool, lacks, err error) {
	if !want.Destination.IsValid() || want.Destination != want.Destination.Masked() || want.Destination.Addr().Is4In6() {
		return r, false, fmt.Errorf("%s is not a prefix that can be routed", want.Destination), nil
	}
	r = route{dst: want.Destination, kind: unix.RTN_UNICAST, protocol: p.cfg.Protocol, metric: metric}
	if want.Kind == plan.Blackhole {
		r.kind = unix.RTN_BLACKHOLE
		return r, true, nil, nil
	}
	if want.Source.IsValid() {
		if want.Source.Is4() == r.dst.Addr().Is4() && p.isLocal(want.Source) {
			r.source = want.Source
		} else {
			lacks = fmt.Errorf("source address %s is not this host's: the route is without", want.Source)
		}
	}
	for _, h := range want.Hops {
		l, there, err := p.link(h.Device)
		switch {
		case err != nil:
			return r, false, nil, err
		case !there:
			lacks = errors.Join(lacks, &link.DownError{Interface: h.Device, Why: "is not there"})
		case !l.Up:
			lacks = errors.Join(lacks, &link.DownError{Interface: h.Device, Why: "is down"})
		case h.Gateway.IsValid() && h.Gateway.Is4() && r.dst.Addr().Is6():
			lacks = errors.Join(lacks, fmt.Errorf("next hop %s is not of the family of %s", h.Gateway, r.dst))
		default:
			r.hops = append(r.hops, nextHop{gateway: h.Gateway.WithZone(""), index: l.Index, onLink: h.OnLink})
		}
	}
	slices.SortFunc(r.hops, compareHops)
	r.hops = slices.Compact(r.hops)
	if len(r.hops) == 0 && lacks == nil {
		lacks = errors.New("it has no next hop")
	}
	return r, len(r.hops) > 0, lacks, nil
}

// routeDifferences compares all routes.
func (p *pass) routeDifferences() ([]*change, error) {
	all, err := readRoutes(p.conn, 0)
	if err != nil {
		return nil, err
	}
	there := make(map[netip.Prefix][]route, len(all))
	for _, r := range all {
		if _, wanted := p.routes[r.dst]; wanted || r.protocol == p.cfg.Protocol {
			there[r.dst] = append(there[r.dst], r)
		}
	}
	var changes []*change
	was := p.held.routes
	p.held.routes = make(map[netip.Prefix]route, len(p.routes))
	for dst := range p.routes {
		some, err := p.routeChanges(dst, there[dst], was[dst])
		if err != nil {
			return nil, err
		}
		changes = append(changes, some...)
	}
	for dst, routes := range there {
		if _, wanted := p.routes[dst]; wanted {
			continue
		}
		for _, r := range routes {
			c := p.deleteRoute(r)
			_, known := was[dst]
			c.drifted = p.ready && !known
			changes = append(changes, c)
		}
	}
	// Maps have no order: a log line that names the first change must name the same one each time.
	slices.SortFunc(changes, func(a, b *change) int { return strings.Compare(a.subject, b.subject) })
	return changes, nil
}

// routeChanges returns the changes that a desired route needs, given the existing routes and the one last seen or written.
func (p *pass) routeChanges(dst netip.Prefix, there []route, was route) (changes []*change, err error) {
	r, ok, lacks, err := p.resolve(p.routes[dst])
	if err != nil {
		return nil, err
	}
	if lacks != nil {
		p.problem(dst.String(), lacks)
	}
	set := &change{subject: dst.String(), what: "set route " + p.routes[dst].String(), drifted: was.equal(r), route: &r,
		make: func() error { return p.conn.RouteReplace(r.netlink()) }}
	missing, replaced := ok && !slices.ContainsFunc(there, r.equal), false
	for _, o := range there {
		switch {
		case o.protocol == link.RouteProtocol:
		case o.protocol != p.cfg.Protocol:
			if ok && o.metric < r.metric {
				p.problem(dst.String(), foreignRoute(o))
			}
		case ok && o.equal(r):
			p.held.routes[dst] = r
		case missing && o.metric == r.metric && !replaced: // by the write of the desired one
			replaced = true
			if p.held.routes[dst] = o; !o.within(r) {
				set.former = append(set.former, o)
			}
		default:
			c := p.deleteRoute(o)
			c.drifted = p.ready
			changes = append(changes, c)
		}
	}
	if missing {
		changes = append(changes, set)
	}
	return changes, nil
}

// someRoutes returns the changes that routes to a few destinations need, based on what was seen or written last.
func (p *pass) someRoutes(destinations []netip.Prefix) (changes []*change, err error) {
	for _, dst := range destinations {
		was, known := p.held.routes[dst]
		var there []route
		if known {
			there = append(there, was)
		}
		if _, wanted := p.routes[dst]; wanted {
			some, err := p.routeChanges(dst, there, route{})
			if err != nil {
				return nil, err
			}
			changes = append(changes, some...)
		} else if known {
			changes = append(changes, p.deleteRoute(was))
		}
	}
	for _, c := range changes {
		c.drifted = false // the desired state changed just now
	}
	return changes, nil
}

func (p *pass) deleteRoute(r route) *change {
	n := r.netlink()
	n.Scope = unix.RT_SCOPE_NOWHERE // any
	return &change{subject: r.dst.String(), what: "delete route to " + r.dst.String(), late: true, make: func() error {
		err := p.conn.RouteDel(n)
		if o := p.held.routes[r.dst]; o.equal(r) && (err == nil || rtnl.IsGone(err)) {
			delete(p.held.routes, r.dst)
		}
		return err
	}}
}

func foreignRoute(o route) error {
	return fmt.Errorf("there is a route that is not ours and comes first, of protocol %d and metric %d: delete it with `ip route del %s proto %d`", o.protocol, o.metric, o.dst, o.protocol)
}
