// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is a route inside a workload.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr // invalid: Configure uses the host end, unless the route is OnLink; Read found a route without one
	Table   uint32     // 0 = main
	Metric  uint32     // 0 = the kernel's default, or after another link's

	// Read doesn't fill in the rest.
	MTU    uint32 // of the path to the destination, 0 = the link's. It is ignored unless below that
	AdvMSS uint32 // advertised by TCP, 0 = derived from the MTU
	Scope  uint8  // of IPv4; IPv6 has none
}

// OnLink reports whether the route's scope excludes a gateway: the destinations are neighbours, and the host end answers for all of them.
func (r Route) OnLink() bool { return r.Dst.Addr().Is4() && r.Scope >= unix.RT_SCOPE_LINK }

// String says which route it is.
func (r Route) String() string {
	text := "route to " + r.Dst.String()
	if r.Gateway.IsValid() {
		text += " by " + r.Gateway.String()
	}
	if !r.isMain() {
		text += fmt.Sprintf(" of table %d", r.Table)
	}
	if r.Metric != 0 {
		text += fmt.Sprintf(" with metric %d", r.Metric)
	}
	return text
}

// isMain reports whether the route is of the main table.
func (r Route) isMain() bool { return r.Table == 0 }

// The limits of a Route's values.
const (
	minMTU4   = 68 // RFC 791
	minMTU6   = 1280
	maxMTU    = 65535
	maxAdvMSS = 65535 - 40 // net/ipv4/metrics.c lowers greater values
	// ownTables is how many tables from besideTable on are ours.
	ownTables = 1 << 16
)

// Check returns an error for a route that the kernel would refuse, or that would lead nowhere.
func (r Route) Check() error {
	dst := r.Dst.Addr()
	least := uint32(minMTU6)
	if dst.Is4() {
		least = minMTU4
	}
	switch {
	case !r.Dst.IsValid() || r.Gateway.IsValid() && r.Gateway.Is4() != dst.Is4():
		return fmt.Errorf("route to %s by %s: not of one family", r.Dst, r.Gateway)
	case r.MTU != 0 && (r.MTU < least || r.MTU > maxMTU):
		return fmt.Errorf("route to %s: mtu %d: want %d to %d", r.Dst, r.MTU, least, maxMTU)
	case r.AdvMSS > maxAdvMSS:
		return fmt.Errorf("route to %s: advmss %d: at most %d", r.Dst, r.AdvMSS, maxAdvMSS)
	case r.Table == unix.RT_TABLE_LOCAL:
		return fmt.Errorf("route to %s: table %d is the kernel's, of local addresses: want another, or none for the main one", r.Dst, r.Table)
	case r.Table >= besideTable && r.Table < besideTable+ownTables:
		return fmt.Errorf("route to %s: table %d: those from %d to %d are for a container's later interfaces: want another", r.Dst, r.Table,
			besideTable, besideTable+ownTables-1)
	}
	switch r.Scope {
	case unix.RT_SCOPE_UNIVERSE, unix.RT_SCOPE_SITE:
	case unix.RT_SCOPE_LINK, unix.RT_SCOPE_HOST:
		if r.Gateway.IsValid() && dst.Is4() {
			return fmt.Errorf("route to %s: scope %d has no gateway, and it names %s: drop one of the two", r.Dst, r.Scope, r.Gateway)
		}
	default:
		return fmt.Errorf("route to %s: scope %d: want %d (global), %d (site), %d (link) or %d (host)", r.Dst, r.Scope,
			unix.RT_SCOPE_UNIVERSE, unix.RT_SCOPE_SITE, unix.RT_SCOPE_LINK, unix.RT_SCOPE_HOST)
	}
	return nil
}

// routes returns the link's routes, each after those that it needs. It omits an MTU that isn't below the link's: the kernel would believe
// it even when the link's shrinks, and lose larger packets.
func (p Net) routes(mtu int, v4 bool) []Route {
	var routes []Route
	if p.DefaultV4 {
		routes = append(routes, Route{Dst: defaultRoute(true)})
	}
	if p.DefaultV6 {
		routes = append(routes, Route{Dst: defaultRoute(false)})
	}
	routes = append(routes, p.Routes...)
	for i, r := range routes {
		if int(r.MTU) >= mtu {
			routes[i].MTU = 0
		}
		if !r.Gateway.IsValid() && !r.OnLink() {
			routes[i].Gateway = hostGateway(r.Dst.Addr().Is4())
		}
	}
	if v4 {
		routes = append([]Route{{Dst: rtnl.HostPrefix(link.HostGateway())}}, routes...)
	}
	return routes
}

// addRoutes adds the routes by a link, or replaces those of the same link. If a destination has a route already, or another link's routes
// come first, each metric depends on the existing routes.
func (n *Namespace) addRoutes(index int, routes []Route, beside bool) error {
	if !beside {
		taken, err := n.addNew(index, routes)
		if err != nil || !taken {
			return err
		}
	}
	tables := make(map[uint32]tableMetrics)
	for _, r := range routes {
		t, read := tables[r.Table]
		if !read {
			var err error
			if t, err = n.routeMetrics(index, r.Table); err != nil {
				return err
			}
			tables[r.Table] = t
		}
		metric := t.metric(index, r, beside)
		if err := n.conn.RouteReplace(r.netlink(index, metric)); err != nil {
			return fmt.Errorf("add %s: %w", r, err)
		}
	}
	return nil
}

// addNew adds routes if there are none. If a destination has one already it returns taken, and ignores whether the other routes could be
// added.
func (n *Namespace) addNew(index int, routes []Route) (taken bool, err error) {
	for _, r := range routes {
		failed := n.conn.RouteAdd(r.netlink(index, r.Metric))
		if errors.Is(failed, unix.EEXIST) {
			return true, nil
		}
		if failed != nil && err == nil {
			err = fmt.Errorf("add %s: %w", r, failed)
		}
	}
	return false, err
}

// netlink returns the route for the library; one without a gateway is for the link itself.
func (r Route) netlink(index int, metric uint32) *netlink.Route {
	scope := r.Scope
	if !r.Gateway.IsValid() && r.Dst.Addr().Is4() {
		scope = max(scope, unix.RT_SCOPE_LINK)
	}
	return &netlink.Route{Dst: rtnl.IPNet(r.Dst.Masked()), Gw: rtnl.IP(r.Gateway), LinkIndex: index, Table: int(r.Table), Scope: netlink.Scope(scope),
		Priority: int(metric), MTU: int(r.MTU), AdvMSS: int(r.AdvMSS)}
}
