// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/policy"
)

// address gives the host its addresses, its routes and, so that nobody need be
// asked, everybody's MAC address.
func (l *lab) address() error {
	for _, version := range [...]int{4, 6} {
		for uplink := range 2 {
			p := l.ports[fmt.Sprintf("eth%d", uplink)]
			link, err := netlink.LinkByIndex(p.index)
			if err != nil {
				return err
			}
			a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(hostAddr(uplink, version), onLink(uplink, version).Bits()))}
			if version == 6 {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, a); err != nil {
				return fmt.Errorf("add %s: %w", a, err)
			}
			hops := outside(uplink, version)
			for _, hop := range hops {
				if onLink(uplink, version).Contains(hop) {
					if err := neighbour(p, hop); err != nil {
						return err
					}
				}
			}
			to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			switch {
			case uplink == 1:
				to = behind(version)
			case version == 6:
				to = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
			r := &netlink.Route{LinkIndex: p.index, Dst: ipNet(to), Gw: hops[0].AsSlice()}
			if err := netlink.RouteAdd(r); err != nil {
				return fmt.Errorf("add a route to %s: %w", to, err)
			}
		}
		for on := range pods {
			for of := range pods {
				for _, a := range append(podAddrs(of, version), extAddr(of, version)) {
					if err := neighbour(l.ports[podPort(on)], a); err != nil {
						return err
					}
				}
			}
		}
	}
	local := &netlink.Route{LinkIndex: 1, Dst: ipNet(netip.PrefixFrom(gateway, 32)), Scope: netlink.SCOPE_HOST, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL}
	if err := netlink.RouteAdd(local); err != nil {
		return fmt.Errorf("make %s the host's: %w", gateway, err)
	}
	return l.route(routes(&policy.State{}))
}

func neighbour(p *port, a netip.Addr) error {
	n := &netlink.Neigh{LinkIndex: p.index, IP: a.AsSlice(), HardwareAddr: hardware(p.far), State: unix.NUD_PERMANENT}
	if err := netlink.NeighSet(n); err != nil {
		return fmt.Errorf("add neighbour %s of %s: %w", a, p.name, err)
	}
	return nil
}

// forget has the host forget all connections.
func (l *lab) forget() error {
	all, err := conntrack.List(func(conntrack.Connection) bool { return true })
	if err != nil {
		return err
	}
	_, err = conntrack.Delete(all)
	return err
}

// route makes the routes to single addresses those that are wanted.
func (l *lab) route(want map[netip.Addr]string) error {
	for a, name := range l.routes {
		if want[a] == name {
			continue
		}
		if err := netlink.RouteDel(l.routeTo(a, name)); err != nil {
			return fmt.Errorf("delete the route to %s by %s: %w", a, name, err)
		}
		delete(l.routes, a)
	}
	for a, name := range want {
		if l.routes[a] == name {
			continue
		}
		if err := netlink.RouteAdd(l.routeTo(a, name)); err != nil {
			return fmt.Errorf("add a route to %s by %s: %w", a, name, err)
		}
		l.routes[a] = name
	}
	return nil
}

func (l *lab) routeTo(a netip.Addr, name string) *netlink.Route {
	return &netlink.Route{LinkIndex: l.ports[name].index, Dst: ipNet(netip.PrefixFrom(a, a.BitLen())), Scope: netlink.SCOPE_LINK}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
