// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DefaultMetric6 is the kernel's metric for IPv6 routes without one (IP6_RT_PRIO_USER).
const DefaultMetric6 = 1024

// Route is a unicast or local route with one next hop, as a comparable value. With several next hops the index is 0.
type Route struct {
	Dst      netip.Prefix
	Gateway  netip.Addr // of either family
	Index    int        // outgoing link
	Table    int        // 0 = main
	Protocol uint8
	Scope    uint8
	Metric   uint32
	OnLink   bool // the gateway is a neighbour, whatever the addresses say
	Local    bool // to the namespace itself
}

// RouteOf converts a route of the library; false unless it is unicast or local.
func RouteOf(r netlink.Route) (Route, bool) {
	table := r.Table
	if table == unix.RT_TABLE_MAIN {
		table = 0
	}
	out := Route{Dst: Prefix(r.Dst), Gateway: GatewayOf(r.Gw, r.Via), Index: r.LinkIndex, Table: table, Protocol: uint8(r.Protocol),
		Scope: uint8(r.Scope), Metric: uint32(r.Priority), OnLink: r.Flags&unix.RTNH_F_ONLINK != 0, Local: r.Type == unix.RTN_LOCAL}
	return out, out.Dst.IsValid() && (r.Type == unix.RTN_UNICAST || r.Type == unix.RTN_LOCAL)
}

// GatewayOf returns a next hop's gateway: an IPv4 route may have an IPv6 gateway (RFC 8950), which the library keeps apart.
func GatewayOf(gw []byte, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok {
		return Addr(v.Addr)
	}
	return Addr(gw)
}

// Netlink returns the route for the library.
func (r Route) Netlink() *netlink.Route {
	out := &netlink.Route{Dst: IPNet(r.Dst), LinkIndex: r.Index, Gw: IP(r.Gateway), Table: r.Table, Protocol: netlink.RouteProtocol(r.Protocol),
		Scope: netlink.Scope(r.Scope), Priority: int(r.Metric)}
	if r.Local {
		out.Type, out.Table = unix.RTN_LOCAL, unix.RT_TABLE_LOCAL
	}
	return out
}

// Routes calls fn for each route that passes the library's filter; a table that doesn't exist yet has none.
func (c *Conn) Routes(family int, filter netlink.Route, mask uint64, fn func(netlink.Route)) error {
	// The kernel filters too, if it can. Strict checking is on only here: with it the kernel would refuse lookups and lists of rules as the
	// library sends them.
	_ = c.SetStrictCheck(true)
	defer func() { _ = c.SetStrictCheck(false) }()
	all, err := Dump(func() ([]netlink.Route, error) { return c.RouteListFiltered(family, &filter, mask) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range all {
		fn(r)
	}
	return nil
}

// Lookup returns the route of the main or the local table that the kernel would take to the address, by the link unless that is 0.
func (c *Conn) Lookup(a netip.Addr, index int) (Route, bool) {
	found, err := c.RouteGetWithOptions(IP(a), &netlink.RouteGetOptions{OifIndex: index, FIBMatch: true})
	if err != nil || len(found) == 0 {
		return Route{}, false
	}
	r, ok := RouteOf(found[0])
	return r, ok && (r.Table == 0 || r.Local)
}
