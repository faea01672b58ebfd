// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"net/netip"

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
	Routes    []Route        // of the main table by this interface, unicast, not the kernel's own
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

// Read reads back what Configure set. The error wraps os.ErrNotExist when
// there is no such interface.
func Read(ns *Namespace, ifName string) (State, error) {
	if err := link.CheckName(ifName); err != nil {
		return State{}, err
	}
	state, err := ns.read(ifName)
	if err != nil {
		return State{}, fmt.Errorf("read %s in %s: %w", ifName, ns.path, err)
	}
	return state, nil
}

func (n *Namespace) read(ifName string) (State, error) {
	l, err := link.Get(n.sock, 0, ifName)
	if err != nil {
		return State{}, err
	}
	beside := false
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
		routes, err := n.sock.Routes(rtnl.RouteFilter{Family: family, Index: l.Index})
		if err != nil {
			return State{}, err
		}
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL {
				state.Routes = append(state.Routes, Route{Dst: r.Dst, Gateway: r.Gateway})
				beside = beside || r.Metric > rtnl.DefaultMetric6
			}
		}
	}
	if beside {
		if state.Astray, err = n.astray(l.Index, state.Addrs); err != nil {
			return State{}, fmt.Errorf("find routes: %w", err)
		}
	}
	return state, nil
}
