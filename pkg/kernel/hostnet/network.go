// SPDX-License-Identifier: Apache-2.0

// Package hostnet reads the host's own part in the network: its links, their addresses and roles, and the ways that its
// routes and rules give.
package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// Network reads the current namespace's own part in the network. Its zero value
// has read nothing yet. It is one goroutine's.
type Network struct {
	// uplinks had the default routes, when there last were any.
	uplinks map[string]bool
}

// Read gives the links but for those with the prefixes, which are workloads', and
// the tunnels of a Fabric; and the routes by them that neither a hostpath.Path nor a
// Fabric made. Addresses that mean nothing beyond a link are left out, and so are
// the routes that the kernel makes of the others.
func (n *Network) Read(workloadPrefixes ...string) (plan.Links, error) {
	s, err := rtnl.Open()
	if err != nil {
		return plan.Links{}, err
	}
	defer s.Close()
	links, err := link.Select(s, func(name string) bool {
		return !link.IsTunnelName(name) &&
			!slices.ContainsFunc(workloadPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	if err != nil {
		return plan.Links{}, err
	}
	links = slices.DeleteFunc(links, func(l link.Link) bool { return l.Alias == link.TunnelAlias })
	slices.SortFunc(links, func(a, b link.Link) int { return a.Index - b.Index })
	addrs, err := hostAddrs(s)
	if err != nil {
		return plan.Links{}, err
	}
	byIndex := make(map[int]string, len(links))
	for _, l := range links {
		byIndex[l.Index] = l.Name
	}
	var out plan.Links
	byDefault := make(map[int]bool)
	if out.Routes, err = hostRoutes(s, byIndex, byDefault); err != nil {
		return plan.Links{}, err
	}
	isUplink := n.uplinkRule(links, byDefault)
	for _, l := range links {
		link := addrs[l.Index]
		link.Name, link.Up, link.NoCarrier, link.MTU = l.Name, l.Up, l.Up && !l.Carrier, l.MTU
		link.Uplink, link.Loopback = l.Up && !l.Loopback && isUplink(l), l.Loopback
		out.Links = append(out.Links, link)
	}
	return out, nil
}

// hostAddrs are the addresses of all links that others can reach, by link; of a link
// nothing else is said.
func hostAddrs(s *rtnl.Socket) (map[int]plan.Link, error) {
	all, err := s.Dump(rtnl.NewMessage(unix.RTM_GETADDR, 0, make([]byte, unix.SizeofIfAddrmsg)))
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	addrs := make(map[int]plan.Link)
	for _, r := range all {
		p, index, ok := rtnl.ParseAddr(r.Body)
		if ok && r.Kind == unix.RTM_NEWADDR && p.IsValid() && !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsLoopback() {
			l := addrs[index]
			sortAddr(&l, p, rtnl.AddrFlags(r.Body))
			addrs[index] = l
		}
	}
	return addrs, nil
}

// sortAddr adds an address to a link by what the kernel says of it (linux/if_addr.h). An
// optimistic one, which is used before it is known to be the host's alone (RFC 4429), is
// pending like any other: other hosts are told of none that may be taken back.
func sortAddr(l *plan.Link, p netip.Prefix, flags uint32) {
	passing := uint32(unix.IFA_F_DEPRECATED)
	if p.Addr().Is6() {
		passing |= unix.IFA_F_TEMPORARY // of IPv4 the same bit says that it is a subnet's second
	}
	if flags&unix.IFA_F_DADFAILED != 0 {
		l.Refused = append(l.Refused, p)
		return
	}
	l.Addrs = append(l.Addrs, p)
	if flags&unix.IFA_F_TENTATIVE != 0 {
		l.Pending = append(l.Pending, p.Addr())
	}
	if flags&passing != 0 {
		l.Passing = append(l.Passing, p.Addr())
	}
}

// hostRoutes are the routes by some links that aren't ours, the best of each
// destination first. It notes the links that have a default route.
func hostRoutes(s *rtnl.Socket, links map[int]string, byDefault map[int]bool) ([]plan.HostRoute, error) {
	var found []rtnl.Route
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := foreignRoutes(s, family, func(r rtnl.Route) {
			if _, ours := links[r.Index]; !ours {
				return
			}
			if r.Dst.Bits() == 0 {
				byDefault[r.Index] = true
			}
			if r.Protocol != unix.RTPROT_KERNEL {
				found = append(found, r)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(found, func(a, b rtnl.Route) int {
		return cmp.Or(rtnl.ComparePrefixes(a.Dst, b.Dst), cmp.Compare(a.Metric, b.Metric))
	})
	var out []plan.HostRoute
	var last rtnl.Route
	for _, r := range found {
		next := r.Several != 0 && r.Several == last.Several && r.Dst == last.Dst
		out = append(out, plan.HostRoute{Destination: r.Dst, Gateway: r.Gateway, Device: links[r.Index], OnLink: r.OnLink, Next: next})
		last = r
	}
	return out, nil
}

// foreignRoutes walks the main table but for our own routes, one next hop at a
// time. Of ours there may be thousands: they aren't kept.
func foreignRoutes(s *rtnl.Socket, family uint8, fn func(rtnl.Route)) error {
	var routes []rtnl.Route
	several := 0
	err := s.Walk(rtnl.RouteFilter{Family: family}.Request(), func() { routes = nil }, func(m rtnl.Received) {
		if len(m.Body) < unix.SizeofRtMsg || m.Body[5] == link.RouteProtocol || m.Body[5] == fabric.Protocol || m.Kind != unix.RTM_NEWROUTE {
			return
		}
		r, ok := rtnl.ParseRoute(m.Body)
		switch {
		case !ok:
		case r.Index == 0:
			several++
			r.Several = several
			routes = append(routes, rtnl.ParseHops(r, m.Body)...)
		default:
			routes = append(routes, r)
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) { // no such table
		return fmt.Errorf("list the host's routes: %w", err)
	}
	for _, r := range routes {
		fn(r)
	}
	return nil
}

// uplinkRule tells by which of the links the world is reached: those of the default
// routes, or that had them last, as a lease that is renewed or a cable that is changed
// takes the routes away for a while; without any, hardware that is up; without any
// either, whatever is up.
func (n *Network) uplinkRule(links []link.Link, byDefault map[int]bool) func(link.Link) bool {
	now := map[string]bool{}
	for _, l := range links {
		if l.Up && !l.Loopback && byDefault[l.Index] {
			now[l.Name] = true
		}
	}
	if len(now) > 0 {
		n.uplinks = now
	}
	for _, isUplink := range []func(link.Link) bool{
		func(l link.Link) bool { return n.uplinks[l.Name] },
		func(l link.Link) bool { return l.Kind == "" },
	} {
		if slices.ContainsFunc(links, func(l link.Link) bool { return l.Up && !l.Loopback && isUplink(l) }) {
			return isUplink
		}
	}
	return func(link.Link) bool { return true }
}
