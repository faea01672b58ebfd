// SPDX-License-Identifier: Apache-2.0

// Package fabric keeps the kernel's routes to other hosts, as package plan computes them: routes, and tunnels with their addresses,
// neighbours and forwarding entries.
package fabric

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/containernetworking/plugins/pkg/ns"
)

// Protocol is the protocol number of a Fabric's routes. It differs from link.RouteProtocol, so that neither Fabric nor hostpath.Path takes
// the other's routes for its own, and each reads only its own.
const Protocol = 81

// metric is the metric of a Fabric's routes, of both families. No other program uses it, so a route can be replaced in one step without
// hitting a foreign one. The route to an endpoint of this host has a smaller metric and wins while an address moves from another host to
// this one.
const metric = 1100

// fewChanges is the largest number of changes that are made without reading everything.
const fewChanges = 24

// Config identifies what is ours on the host.
type Config struct {
	Protocol uint8        // of our routes; 0 = Protocol; must not be that of a hostpath.Path
	Prefixes []string     // of workload interfaces' names, whose events are ignored; empty = "cali"
	Logger   *slog.Logger // nil = none
}

// Fabric keeps what leads packets to other hosts: routes, and tunnel devices with their addresses, neighbours and forwarding entries. It
// owns the routes of its protocol, the devices that the plan names, which it marks by their alias, and everything on these; it changes
// nothing else. It belongs to the network namespace that it was created in. It is safe for concurrent use.
type Fabric struct {
	cfg Config
	ns  ns.NetNS

	mu      sync.Mutex
	conn    *rtnl.Conn
	routes  map[netip.Prefix]plan.Route
	remotes map[plan.RemoteID]plan.Remote
	tunnels []plan.Tunnel
	held    held
	ready   bool // Apply has completed: what differs now has drifted
	repairs rtnl.Repairs
}

// held is what the kernel holds as desired, as last seen or written.
type held struct {
	routes  map[netip.Prefix]route
	remotes map[plan.RemoteID]plan.Remote
	devices map[plan.TunnelKind]device
}

// device is a tunnel device that was right when last seen.
type device struct {
	index  int
	tunnel plan.Tunnel
}

// Problem is something that the kernel doesn't hold as desired.
type Problem struct {
	Subject string // a prefix, a device, or a host's address
	Err     error
}

// Report is the result of an Apply.
type Report struct {
	// Problems, sorted by subject: after Apply all, after ApplySome those of the requested changes.
	Problems []Problem
	// Writes is the number of changes made, Repairs how many of them undid another program's changes.
	Writes, Repairs int
}

// New opens the current network namespace.
func New(cfg Config) (*Fabric, error) {
	if cfg.Protocol == 0 {
		cfg.Protocol = Protocol
	}
	if cfg.Protocol == link.RouteProtocol {
		return nil, fmt.Errorf("protocol %d is that of the routes to workloads: those to other hosts need another", cfg.Protocol)
	}
	if len(cfg.Prefixes) == 0 {
		cfg.Prefixes = []string{"cali"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	here, err := ns.GetCurrentNS()
	if err != nil {
		return nil, err
	}
	conn, err := rtnl.DialAt(here)
	if err != nil {
		_ = here.Close()
		return nil, err
	}
	return &Fabric{
		cfg: cfg, ns: here, conn: conn,
		held: held{make(map[netip.Prefix]route), make(map[plan.RemoteID]plan.Remote), make(map[plan.TunnelKind]device)},
	}, nil
}

// Close releases what Fabric holds. What it programmed stays.
func (f *Fabric) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conn.Close()
	_ = f.ns.Close()
}

// Apply makes the kernel hold exactly the routes, tunnels and remotes of the state, reads them back and reports what is missing. The error
// says that the kernel could not be read, or that the context ended.
func (f *Fabric) Apply(ctx context.Context, desired plan.State) (Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes, f.remotes, f.tunnels = make(map[netip.Prefix]plan.Route), make(map[plan.RemoteID]plan.Remote), slices.Clone(desired.Tunnels)
	maps.Copy(f.routes, desired.Routes)
	maps.Copy(f.remotes, desired.Remotes)
	return f.converge(ctx)
}

// ApplySome applies changes of routes, devices and remotes. Unless the devices change, its cost doesn't grow with the number of routes and
// remotes: it trusts the kernel's answers to its writes, and the next Apply reads back.
func (f *Fabric) ApplySome(ctx context.Context, changes plan.Changes) (Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, r := range changes.Routes {
		if r == nil {
			delete(f.routes, p)
		} else {
			f.routes[p] = *r
		}
	}
	for id, r := range changes.Remotes {
		if r == nil {
			delete(f.remotes, id)
		} else {
			f.remotes[id] = *r
		}
	}
	if changes.Devices != nil {
		f.tunnels = slices.Clone(changes.Devices.Tunnels)
	}
	if changes.Devices != nil || !f.ready || len(changes.Routes)+len(changes.Remotes) > max(fewChanges, len(f.routes)/4) {
		return f.converge(ctx)
	}
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	p := newPass(f)
	defer p.logRepairs()
	changed := p.someRemotes(changes.Remotes)
	some, err := p.someRoutes(slices.SortedFunc(maps.Keys(changes.Routes), rtnl.ComparePrefixes))
	if err == nil {
		err = p.write(ctx, append(changed, some...))
	}
	if err != nil {
		return Report{}, err
	}
	for subject, err := range p.refusals {
		p.problem(subject, err)
	}
	return p.report(), nil
}

// converge reads everything, writes the differences and reads again.
func (f *Fabric) converge(ctx context.Context) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	p := newPass(f)
	defer p.logRepairs()
	for _, t := range f.tunnels {
		if err := p.ensureTunnel(t); err != nil {
			return Report{}, err
		}
	}
	if err := p.round(ctx); err != nil {
		return Report{}, err
	}
	bare, err := p.removeStaleTunnels()
	if err == nil && bare {
		err = p.round(ctx)
	}
	if err != nil {
		return Report{}, err
	}
	if p.writes > 0 || len(p.refusals) > 0 { // read back
		again := newPass(f)
		again.refusals = p.refusals
		if err := again.check(); err != nil {
			return Report{}, err
		}
		again.writes, again.repairs = p.writes, p.repairs
		f.ready = true
		return again.report(), nil
	}
	f.ready = true
	return p.report(), nil
}

// isWorkload reports whether a link with that name is a workload's.
func (c Config) isWorkload(name string) bool {
	return model.IsWorkloadInterface(name, c.Prefixes)
}
