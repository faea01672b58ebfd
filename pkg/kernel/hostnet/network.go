// SPDX-License-Identifier: Apache-2.0

// Package hostnet reads the host's own network: its links, their addresses and roles, and the links that its routes and
// rules use.
package hostnet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network reads the current namespace's own network. Its zero value is ready to use. It is not safe for concurrent use.
type Network struct {
	// uplinks are the links that had the default routes when there last were any.
	uplinks map[string]bool
}

// Read returns the links, except workloads' (those with a prefix) and the tunnels to other hosts, and the routes by these links that the
// agent didn't create. It omits link-local and loopback addresses, and routes that the kernel creates for addresses.
func (n *Network) Read(workloadPrefixes ...string) (plan.Links, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return plan.Links{}, err
	}
	defer c.Close()
	links, err := link.Select(c, func(name string) bool {
		return !link.IsTunnelName(name) && !model.IsWorkloadInterface(name, workloadPrefixes)
	})
	if err != nil {
		return plan.Links{}, err
	}
	links = slices.DeleteFunc(links, func(l link.Link) bool { return l.Alias == link.TunnelAlias })
	slices.SortFunc(links, func(a, b link.Link) int { return a.Index - b.Index })
	addrs, err := hostAddrs(c)
	if err != nil {
		return plan.Links{}, err
	}
	routes, byDefault, err := hostRoutes(c, links)
	if err != nil {
		return plan.Links{}, err
	}
	out := plan.Links{Routes: routes}
	isUplink := n.uplinkRule(links, byDefault)
	for _, l := range links {
		link := addrs[l.Index]
		link.Name, link.Up, link.NoCarrier, link.MTU = l.Name, l.Up, l.Up && !l.Carrier, l.MTU
		link.Uplink, link.Loopback = l.Up && !l.Loopback && isUplink(l), l.Loopback
		out.Links = append(out.Links, link)
	}
	return out, nil
}

// listAddrs returns the addresses of all links.
func listAddrs(c *rtnl.Conn) ([]netlink.Addr, error) {
	all, err := rtnl.Dump(func() ([]netlink.Addr, error) { return c.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	return all, nil
}

// hostAddrs returns the addresses of all links that others can reach, by link index; the links have no other fields.
func hostAddrs(c *rtnl.Conn) (map[int]plan.Link, error) {
	all, err := listAddrs(c)
	if err != nil {
		return nil, err
	}
	addrs := make(map[int]plan.Link)
	for _, a := range all {
		p := rtnl.Prefix(a.IPNet)
		if p.IsValid() && !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsLoopback() {
			l := addrs[a.LinkIndex]
			addAddr(&l, p, a.Flags)
			addrs[a.LinkIndex] = l
		}
	}
	return addrs, nil
}

// addAddr adds an address to a link, according to the kernel's flags (linux/if_addr.h). An optimistic address, which is used before it is
// known to be unique (RFC 4429), is pending like any other: other hosts must not learn one that may be withdrawn.
func addAddr(l *plan.Link, p netip.Prefix, flags int) {
	passing := unix.IFA_F_DEPRECATED
	if p.Addr().Is6() {
		passing |= unix.IFA_F_TEMPORARY // for IPv4 the same bit marks a subnet's second address
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

// hostRoute is a route with one of its next hops.
type hostRoute struct {
	rtnl.Route
	several int // identifies a route with several next hops; 0 = it has one
}

// hostRoutes returns the routes by some links that the agent didn't create, the best for each destination first, and the links that have a
// default route.
func hostRoutes(c *rtnl.Conn, links []link.Link) (out []plan.HostRoute, byDefault map[int]bool, err error) {
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Index] = l.Name
	}
	byDefault = make(map[int]bool)
	var found []hostRoute
	several := 0
	add := func(r hostRoute) {
		if _, wanted := names[r.Index]; !wanted {
			return
		}
		if r.Dst.Bits() == 0 {
			byDefault[r.Index] = true
		}
		if r.Protocol != unix.RTPROT_KERNEL {
			found = append(found, r)
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		err := c.Routes(family, netlink.Route{Type: unix.RTN_UNICAST}, netlink.RT_FILTER_TYPE, func(all netlink.Route) {
			r, ok := rtnl.RouteOf(all)
			if !ok || r.Protocol == link.RouteProtocol || r.Protocol == fabric.Protocol {
				return
			}
			if len(all.MultiPath) == 0 {
				add(hostRoute{Route: r})
				return
			}
			several++
			for _, h := range all.MultiPath {
				r.Index, r.Gateway, r.OnLink = h.LinkIndex, rtnl.GatewayOf(h.Gw, h.Via), h.Flags&unix.RTNH_F_ONLINK != 0
				add(hostRoute{r, several})
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(found, func(a, b hostRoute) int {
		return cmp.Or(rtnl.ComparePrefixes(a.Dst, b.Dst), cmp.Compare(a.Metric, b.Metric))
	})
	var last hostRoute
	for _, r := range found {
		next := r.several != 0 && r.several == last.several && r.Dst == last.Dst
		out = append(out, plan.HostRoute{Destination: r.Dst, Gateway: r.Gateway, Device: names[r.Index], OnLink: r.OnLink, Next: next})
		last = r
	}
	return out, byDefault, nil
}

// uplinkRule picks the uplinks: links that have a default route now, or last had one, as renewing a lease or changing a cable removes the
// routes for a while; else hardware that is up; else all links that are up.
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
