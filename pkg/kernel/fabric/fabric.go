// SPDX-License-Identifier: Apache-2.0

// Package fabric keeps what leads to other hosts as plan.Engine decides it: routes, and tunnels with their addresses,
// neighbours and forwarding entries.
package fabric

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
)

// Protocol is the protocol number of a Fabric's routes. It is not
// link.RouteProtocol, so that neither Fabric nor hostpath.Path takes the other's routes for
// its own, and each reads its own alone.
const Protocol = 81

// Metric is the metric of a Fabric's routes, of both families. Nobody else
// has it, so that a route can be replaced in one step without hitting a foreign
// one; and the route to an endpoint of this host, which has a smaller one, comes
// first while an address moves from another host to this one.
const Metric = 1100

// fewChanges are not more than those that it pays to make without reading all.
const fewChanges = 24

// Config says what is ours on the host.
type Config struct {
	Protocol uint8        // of our routes; 0 = Protocol; never a hostpath.Path's
	Prefixes []string     // of workload interfaces' names, whose events don't matter; empty = "cali"
	Logger   *slog.Logger // nil = none
}

// Fabric keeps what leads packets to other hosts: routes, and tunnel devices with
// their addresses, neighbours and forwarding entries. It owns the routes of its
// protocol; of devices those that the plan names, which it marks by their alias,
// and all that is on them; and changes nothing else. It belongs to the network
// namespace that it was made in. Safe for concurrent use.
type Fabric struct {
	cfg  Config
	ns   rtnl.Netns
	port uint32 // of sock, to know our own changes among the events
	hash maphash.Hash

	mu      sync.Mutex
	sock    *rtnl.Socket
	told    *rtnl.Journal
	routes  map[netip.Prefix]plan.Route
	remotes map[plan.RemoteID]plan.Remote
	tunnels []plan.Tunnel
	held    map[netip.Prefix]route // as desired, and seen in the kernel so
	// heldRemotes likewise, or written and not yet read back.
	heldRemotes    map[plan.RemoteID]plan.Remote
	settledTunnels map[plan.TunnelKind]plan.Tunnel // those that were right when last seen
	devices        map[plan.TunnelKind]int         // indices of those that were right when last seen
	ready          bool                            // Apply has been through: what differs now has drifted
	right          *glance                         // what the kernel showed when there was nothing to do; nil = there was, or is
	said           rtnl.Repairs
}

// Problem is something that the kernel doesn't hold as desired.
type Problem struct {
	Subject string // a prefix, a device, or a host's address
	Err     error
}

// Report says what an Apply found and did.
type Report struct {
	// Problems, sorted by subject: of Apply all that there are, of ApplySome those
	// of what it was asked to change.
	Problems []Problem
	// Writes is how many changes were made, Repairs how many of them undid what
	// someone else had done to state that was right before.
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
	ns, err := rtnl.OpenNetns(rtnl.OwnNetns)
	if err != nil {
		return nil, err
	}
	f := &Fabric{
		cfg: cfg, ns: ns,
		routes:         make(map[netip.Prefix]plan.Route),
		remotes:        make(map[plan.RemoteID]plan.Remote),
		held:           make(map[netip.Prefix]route),
		heldRemotes:    make(map[plan.RemoteID]plan.Remote),
		settledTunnels: make(map[plan.TunnelKind]plan.Tunnel),
		devices:        make(map[plan.TunnelKind]int),
	}
	err = ns.Enter(func() (err error) {
		if f.sock, err = rtnl.Open(); err != nil {
			return err
		}
		if f.told, err = rtnl.OpenJournal(f.sock.Port); err != nil {
			f.sock.Close()
		}
		return err
	})
	if err != nil {
		ns.Close()
		return nil, err
	}
	f.port = f.sock.Port
	return f, nil
}

// Close releases what Fabric holds. What it programmed stays.
func (f *Fabric) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sock.Close()
	f.told.Close()
	f.ns.Close()
}

// Apply makes the kernel hold exactly the routes, tunnels and remotes of the
// state and reports what it lacks, read back. The error says that the kernel
// could not be read, or that the context ended.
func (f *Fabric) Apply(ctx context.Context, desired plan.State) (Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes, f.remotes, f.tunnels = maps.Clone(desired.Routes), maps.Clone(desired.Remotes), slices.Clone(desired.Tunnels)
	if f.routes == nil {
		f.routes = make(map[netip.Prefix]plan.Route)
	}
	if f.remotes == nil {
		f.remotes = make(map[plan.RemoteID]plan.Remote)
	}
	return f.converge(ctx)
}

// ApplySome changes the desired state by what changed of the routes, devices and
// remotes. While the devices stay as they are its cost doesn't grow with the
// routes and remotes that are there.
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
	before := make(map[plan.RemoteID]plan.Remote, len(changes.Remotes))
	for id, r := range changes.Remotes {
		if was, ok := f.remotes[id]; ok {
			before[id] = was
		}
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
	return f.convergeSome(ctx, slices.Collect(maps.Keys(changes.Routes)), changes.Remotes, before)
}

// converge reads, writes the difference and reads again, of everything.
func (f *Fabric) converge(ctx context.Context) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	before := f.right
	f.right = nil
	// Before all is read: what changes later will be seen by one or the other.
	f.told.Hear(f.sock.Buf, f.matters)
	seen, unseen := f.glance(nil)
	p := newPass(f)
	defer p.sayRepairs()
	for _, t := range f.tunnels {
		if err := p.ensureTunnel(t); err != nil {
			return Report{}, err
		}
	}
	if err := p.round(ctx); err != nil {
		return Report{}, err
	}
	bare, err := p.removeTunnels()
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
		p = again
	}
	f.ready = true
	report := p.report()
	switch {
	case report.Writes == 0 && unseen == nil && len(report.Problems) == 0:
		f.right = &seen
		f.told.ReadAll()
	case report.Writes == 0:
		f.right = before
	}
	return report, nil
}

// convergeSome does so of a few routes and remotes.
func (f *Fabric) convergeSome(ctx context.Context, routes []netip.Prefix, remotes map[plan.RemoteID]*plan.Remote, before map[plan.RemoteID]plan.Remote) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	f.right = nil
	p := newPass(f)
	defer p.sayRepairs()
	slices.SortFunc(routes, rtnl.ComparePrefixes)
	if err := p.someRemotes(remotes, before); err != nil {
		return Report{}, err
	}
	if err := p.someRoutes(routes); err != nil {
		return Report{}, err
	}
	if err := p.goneRemotes(remotes, before); err != nil {
		return Report{}, err
	}
	return p.report(), nil
}
