// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Workloads returns the names of the links in the current namespace that the plugin created for workloads.
func Workloads() ([]string, error) {
	all, err := List("")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range all {
		if strings.HasPrefix(l.Alias, WorkloadAlias) && l.Alias != TunnelAlias {
			names = append(names, l.Name)
		}
	}
	return names, nil
}

// CloseLoopback ensures that no workload's link in the current namespace reaches the host's loopback, even if an older version of this
// program, or metadata for virtual machines, had allowed it (route_localnet). It returns the links that it changed.
func CloseLoopback() (closed []string, err error) {
	all, err := List("")
	for _, l := range all {
		sysctl := "ipv4/conf/" + l.Name + "/route_localnet"
		if !strings.HasPrefix(l.Alias, WorkloadAlias) && !l.GatewayLL().IsValid() && !(l.IsUnnamed() && strings.HasPrefix(l.Name, "cali")) {
			continue
		}
		on, readErr := rtnl.ReadSysctl(sysctl)
		if readErr == nil && on != 0 {
			readErr = rtnl.WriteSysctl(sysctl, "0")
			closed = append(closed, l.Name)
		}
		if !errors.Is(readErr, os.ErrNotExist) { // the link is gone
			err = errors.Join(err, readErr)
		}
	}
	return closed, err
}

// DeleteRoutes deletes the remaining routes of RouteProtocol in the current namespace, of all tables, and returns how many there were.
func DeleteRoutes() (n int, err error) {
	c, err := rtnl.Dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var all []netlink.Route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		filter := netlink.Route{Protocol: RouteProtocol, Table: unix.RT_TABLE_UNSPEC}
		err := c.Routes(family, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE, func(r netlink.Route) { all = append(all, r) })
		if err != nil {
			return 0, err
		}
	}
	for _, r := range all {
		if err := c.RouteDel(&r); err != nil && !rtnl.IsGone(err) {
			return n, fmt.Errorf("delete route to %s: %w", r.Dst, err)
		}
		n++
	}
	return n, nil
}
