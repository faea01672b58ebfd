// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
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
	Routes    []Route        // of the main table and those asked for, by this interface, unicast, not the kernel's own
	Astray    []netip.Addr   // from these packets leave by another interface, whose routes come first
}

// HasRoute says whether there is a route to the destination by the gateway.
func (s State) HasRoute(dst netip.Prefix, gateway netip.Addr) bool {
	for _, r := range s.Routes {
		if r.Dst == dst.Masked() && r.Gateway == gateway {
			return true
		}
	}
	return false
}

// Read reads back what Configure set, routes in the main table and in those named. The error wraps os.ErrNotExist when
// there is no such interface.
func Read(ns *Namespace, ifName string, tables ...uint32) (State, error) {
	if err := link.CheckName(ifName); err != nil {
		return State{}, err
	}
	state, err := ns.read(ifName, tables)
	if err != nil {
		return State{}, fmt.Errorf("read %s in %s: %w", ifName, ns.path, err)
	}
	return state, nil
}

func (n *Namespace) read(ifName string, tables []uint32) (State, error) {
	l, err := link.Get(n.sock, 0, ifName)
	if err != nil {
		return State{}, err
	}
	state := State{Index: l.Index, MAC: l.MAC, MTU: l.MTU, Up: l.Up, HostIndex: l.Parent}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := rtnl.NewMessage(unix.RTM_GETADDR, 0, make([]byte, unix.SizeofIfAddrmsg))
		(*request)[unix.SizeofNlMsghdr] = family
		all, err := n.sock.Dump(request)
		if err != nil {
			return State{}, fmt.Errorf("list addresses: %w", err)
		}
		for _, r := range all {
			if p, index, ok := rtnl.ParseAddr(r.Body); ok && index == l.Index && r.Kind == unix.RTM_NEWADDR {
				if p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
					state.LinkLocal = append(state.LinkLocal, p)
				} else {
					state.Addrs = append(state.Addrs, p)
				}
			}
		}
		if err := n.readRoutes(&state, family, tables); err != nil {
			return State{}, err
		}
	}
	return state, n.readAstray(&state)
}

// readRoutes reads the link's routes of one family.
func (n *Namespace) readRoutes(state *State, family uint8, tables []uint32) error {
	for _, table := range append([]uint32{0}, tables...) {
		routes, err := n.sock.Routes(rtnl.RouteFilter{Family: family, Index: state.Index, Table: table})
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL {
				state.Routes = append(state.Routes, Route{Dst: r.Dst, Gateway: r.Gateway, Table: table, Metric: r.Metric})
			}
		}
	}
	return nil
}

// readAstray looks whether what is sent from the addresses leaves by the link, where its routes have
// the metrics of one that comes after another. Other routes may have been given such metrics.
func (n *Namespace) readAstray(state *State) (err error) {
	var v4, v6 bool
	for _, r := range state.Routes {
		if !r.isMain() || r.Metric <= rtnl.DefaultMetric6 {
			continue
		}
		switch r.Dst {
		case rtnl.HostPrefix(link.HostGateway()):
			v4, v6 = true, true
		case defaultRoute(true):
			v4 = true
		case defaultRoute(false):
			v6 = true
		}
	}
	addrs := slices.DeleteFunc(slices.Clone(state.Addrs), func(a netip.Prefix) bool { return a.Addr().Is4() && !v4 || a.Addr().Is6() && !v6 })
	if len(addrs) == 0 {
		return nil
	}
	if state.Astray, err = n.astray(state.Index, addrs); err != nil {
		return fmt.Errorf("find routes: %w", err)
	}
	return nil
}
