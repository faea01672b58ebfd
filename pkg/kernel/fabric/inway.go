// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LedByRoute reports whether the kernel would send the current namespace's packets for an address by a route to a workload, of this host or
// of another.
func LedByRoute(a netip.Addr) (bool, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return false, err
	}
	defer c.Close()
	r, ok := c.Lookup(a, 0)
	return ok && !r.Local && (r.Protocol == link.RouteProtocol || r.Protocol == Protocol), nil
}

// ClearWay deletes a Fabric's routes, blackholes included, by which the kernel would send packets for some addresses. It returns their
// destinations, and a function that restores them, to be called only before a Fabric is at work.
func ClearWay(addrs ...netip.Addr) (gone []netip.Prefix, restore func() error, err error) {
	c, err := rtnl.Dial()
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	found, err := decisive(c, addrs)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, r := range found {
		gone = append(gone, r.dst)
		n := r.netlink()
		n.Scope = unix.RT_SCOPE_NOWHERE // any
		if err := c.RouteDel(n); err != nil && !rtnl.IsGone(err) {
			errs = append(errs, fmt.Errorf("delete route to %s: %w", r.dst, err))
		}
	}
	return gone, func() error { return restoreRoutes(found) }, errors.Join(errs...)
}

func restoreRoutes(routes []route) error {
	var errs []error
	for _, r := range routes {
		if err := netlink.RouteAdd(r.netlink()); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("set route to %s: %w", r.dst, err))
		}
	}
	return errors.Join(errs...)
}

// decisive returns the routes for ClearWay: the longest that match an address decide, and among these the one with the lowest metric; if
// that is a Fabric's, the next one would decide without it, and so on.
func decisive(c *rtnl.Conn, addrs []netip.Addr) (found []route, err error) {
	all, err := readRoutes(c, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if r, ok := c.Lookup(a, 0); ok && r.Local {
			continue
		}
		for {
			best := -1
			for i, r := range all {
				if r.dst.Contains(a) && (best < 0 || r.before(all[best])) {
					best = i
				}
			}
			if best < 0 || all[best].protocol != Protocol {
				break
			}
			found = append(found, all[best])
			all = append(all[:best], all[best+1:]...)
		}
	}
	return found, nil
}

// before reports whether a route wins over another to the same address.
func (r route) before(o route) bool {
	if r.dst.Bits() != o.dst.Bits() {
		return r.dst.Bits() > o.dst.Bits()
	}
	return r.metric < o.metric
}
