// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// State is what a workload's interface holds.
type State struct {
	Index     int
	MAC       model.MAC
	MTU       int
	Up        bool
	HostIndex int            // index of the host end in the host's namespace
	Addrs     []netip.Prefix // those that are not link-local
	LinkLocal []netip.Prefix // IPv6
	Routes    []Route        // of the main table and the requested ones, by this interface, unicast, not the kernel's own
	Astray    []netip.Addr   // packets from these leave by another interface, whose routes come first
}

// Read reads back what Configure set, with the routes in the main table and in the given ones. The error wraps os.ErrNotExist if there is
// no such interface.
func Read(n *Namespace, ifName string, tables ...uint32) (State, error) {
	if err := link.CheckName(ifName); err != nil {
		return State{}, err
	}
	state, err := n.read(ifName, tables)
	if err != nil {
		return State{}, fmt.Errorf("read %s in %s: %w", ifName, n.path, err)
	}
	return state, nil
}

func (n *Namespace) read(ifName string, tables []uint32) (State, error) {
	l, err := link.Get(n.conn, 0, ifName)
	if err != nil {
		return State{}, err
	}
	state := State{Index: l.Index, MAC: l.MAC, MTU: l.MTU, Up: l.Up, HostIndex: l.Parent}
	for _, family := range families() {
		all, err := rtnl.Dump(func() ([]netlink.Addr, error) { return n.conn.AddrList(rtnl.Device(l.Index), family) })
		if err != nil {
			return State{}, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range all {
			p := rtnl.Prefix(a.IPNet)
			if p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
				state.LinkLocal = append(state.LinkLocal, p)
			} else {
				state.Addrs = append(state.Addrs, p)
			}
		}
		for _, table := range append([]uint32{0}, tables...) {
			err := n.eachRoute(family, table, func(r rtnl.Route) {
				if r.Index == l.Index && r.Protocol != unix.RTPROT_KERNEL {
					state.Routes = append(state.Routes, Route{Dst: r.Dst, Gateway: r.Gateway, Table: table, Metric: r.Metric})
				}
			})
			if err != nil {
				return State{}, err
			}
		}
	}
	n.readAstray(&state)
	return state, nil
}

// eachRoute calls fn for each unicast route of a table, 0 = main.
func (n *Namespace) eachRoute(family int, table uint32, fn func(rtnl.Route)) error {
	filter := netlink.Route{Table: int(cmp.Or(table, unix.RT_TABLE_MAIN)), Type: unix.RTN_UNICAST}
	return n.conn.Routes(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE, func(r netlink.Route) {
		if r, ok := rtnl.RouteOf(r); ok {
			fn(r)
		}
	})
}

// readAstray checks whether packets from the addresses leave by the link, if its routes have the metrics of a link that comes after
// another. Other programs' routes may have such metrics too.
func (n *Namespace) readAstray(state *State) {
	var v4, v6 bool
	for _, r := range state.Routes {
		if !r.isMain() || r.Metric <= rtnl.DefaultMetric6 {
			continue
		}
		v4 = v4 || r.Dst == rtnl.HostPrefix(link.HostGateway()) || r.Dst == defaultRoute(true)
		v6 = v6 || r.Dst == rtnl.HostPrefix(link.HostGateway()) || r.Dst == defaultRoute(false)
	}
	for _, p := range state.Addrs {
		if a := p.Addr(); (a.Is4() && v4 || a.Is6() && v6) && n.leavesBy(a) != state.Index {
			state.Astray = append(state.Astray, a)
		}
	}
}
