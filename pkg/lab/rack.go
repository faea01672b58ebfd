// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

const (
	// rackBridge connects the hosts of a rack, and rackUplink leads to the fabric. Both are links of the rack's router.
	rackBridge, rackUplink = "rack0", "uplink"
	// maxRacks is the number of subnets from 172.21.0.0/16 on.
	maxRacks = 11
)

func rackName(i int) string { return fmt.Sprintf("rack%d", i) }

// Router is a rack's router: a namespace that forwards between the rack's subnet, on its link rack0, and the fabric, on
// its link uplink. It has static routes to the subnets of the other racks, and none to pods: a test may run a routing
// daemon in it, as on a top-of-rack switch.
type Router struct {
	lab  *Lab
	rack int // from 1
	ns   Namespace
}

// makeRouters makes the routers of all racks.
func (f *fabric) makeRouters() error {
	for i := range f.state.Racks {
		if err := f.makeRouter(i + 1); err != nil {
			return fmt.Errorf("make the router of %s: %w", rackName(i+1), err)
		}
	}
	return nil
}

func (f *fabric) makeRouter(rack int) error {
	ns, err := createNamespace(namespaceIn(f.lab, rackName(rack)).path)
	if err != nil {
		return err
	}
	if err := ns.Do(forward); err != nil {
		return err
	}
	if err := ns.links(func(h *netlink.Handle) error { return f.wire(rack).addBridge(h) }); err != nil {
		return err
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: rackName(rack), Alias: "router of " + rackName(rack)}, PeerName: rackUplink}
	if err := f.wire(0).addPort(veth, ns, uplinkAddr(false, rack), uplinkAddr(true, rack)); err != nil {
		return err
	}
	err = ns.links(func(h *netlink.Handle) error {
		for _, v6 := range []bool{false, true} {
			if err := addRoute(h, netip.Prefix{}, gatewayAddr(v6, 0).Addr()); err != nil {
				return err
			}
			for other := range f.state.Racks {
				if other+1 == rack {
					continue
				}
				if err := routeToRack(h, v6, other+1); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return f.ns.links(func(h *netlink.Handle) error {
		for _, v6 := range []bool{false, true} {
			if err := routeToRack(h, v6, rack); err != nil {
				return err
			}
		}
		return nil
	})
}

func routeToRack(h *netlink.Handle, v6 bool, rack int) error {
	return addRoute(h, subnetAddr(v6, rack, 0), uplinkAddr(v6, rack).Addr())
}

// Routers returns the routers of all racks, in order.
func (l *Lab) Routers() []*Router {
	var routers []*Router
	for i := 1; i <= l.state.Racks; i++ {
		routers = append(routers, &Router{lab: l, rack: i, ns: l.named(rackName(i))})
	}
	return routers
}

// Router returns the router of rack i, from 1. If there is none, the test ends.
func (l *Lab) Router(i int) *Router {
	if i < 1 || i > l.state.Racks {
		l.fatal(fmt.Errorf("no rack %d in lab %s: it has %d", i, l.name, l.state.Racks))
	}
	return l.Routers()[i-1]
}

// Router returns the router of the host's rack; nil for a host on the fabric itself.
func (h *Host) Router() *Router {
	if h.rack == 0 {
		return nil
	}
	return &Router{lab: h.lab, rack: h.rack, ns: h.lab.named(rackName(h.rack))}
}

// AddHost makes a host in the rack and starts its agent.
func (r *Router) AddHost(ctx context.Context, name string) (*Host, error) {
	return r.lab.addHost(ctx, name, r.rack)
}

// Name returns the rack's name: "rack1".
func (r *Router) Name() string { return rackName(r.rack) }

// Namespace returns the router's network namespace.
func (r *Router) Namespace() Namespace { return r.ns }

// Addrs returns the addresses in the rack, on link rack0: its hosts' default gateway.
func (r *Router) Addrs() []netip.Addr {
	return []netip.Addr{gatewayAddr(false, r.rack).Addr(), gatewayAddr(true, r.rack).Addr()}
}

// Uplinks returns the router's addresses on the fabric, on link uplink.
func (r *Router) Uplinks() []netip.Addr {
	return []netip.Addr{uplinkAddr(false, r.rack).Addr(), uplinkAddr(true, r.rack).Addr()}
}

// Subnets returns the rack's subnets, one per family.
func (r *Router) Subnets() []netip.Prefix {
	return []netip.Prefix{subnetAddr(false, r.rack, 0), subnetAddr(true, r.rack, 0)}
}

// Hosts returns the hosts of the rack, in the order of their creation.
func (r *Router) Hosts() []*Host {
	var hosts []*Host
	for _, h := range r.lab.Hosts() {
		if h.rack == r.rack {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// Do runs fn in the router's network namespace; see Namespace.Do.
func (r *Router) Do(fn func() error) error { return r.ns.Do(fn) }

// Exec runs a command on the router and returns what it wrote to stdout.
func (r *Router) Exec(ctx context.Context, command string, args ...string) ([]byte, error) {
	return run(ctx, r.ns, os.Environ(), command, args...)
}

// Start starts a command on the router that runs until it is stopped or the lab is closed. role is its name in the lab.
func (r *Router) Start(role, command string, args ...string) (*Process, error) {
	return r.lab.procs.startNamed(role, r.ns, os.Environ(), command, args)
}

// Ping is like Pod.Ping but from the router.
func (r *Router) Ping(ctx context.Context, target Target) error {
	if err := pingAll(ctx, r.ns, target); err != nil {
		return fmt.Errorf("from the router of %s: %w", r.Name(), err)
	}
	return nil
}
