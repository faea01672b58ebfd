// SPDX-License-Identifier: Apache-2.0

// Package etcdguard knows the addresses of etcd, and keeps the host's own routes from leading away from them.
package etcdguard

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/kernel/fabric"
)

const (
	// patience is how long etcd may take to answer, when the agent starts, before a former run's routes that lead away from it are removed.
	patience = 5 * time.Second
	// trial is how long they stay removed if etcd still doesn't answer: it may be a workload that only such routes lead to.
	trial = 30 * time.Second
	// pause is the time between two trials.
	pause = time.Minute
)

// etcd has the addresses in use, and the names to look addresses up by: store.Client.
type etcd interface {
	Addrs() []netip.Addr
	Names() []string
}

// resolver is net.Resolver.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Guard knows the addresses of etcd. It is safe for concurrent use.
type Guard struct {
	log      *slog.Logger
	etcd     etcd
	resolver resolver
	// led reports whether a route to a workload leads to an address, and remove removes a former run's routes that do: fabric's functions.
	led    func(netip.Addr) (bool, error)
	remove func(...netip.Addr) (removed []netip.Prefix, restore func() error, err error)
	heard  chan struct{} // closed when etcd has answered

	mu       sync.Mutex
	answered bool
	byRoutes map[netip.Addr]bool // the addresses seen since, and whether workloads' routes led there
}

// New returns a Guard for a client of etcd that has not answered yet.
func New(log *slog.Logger, client etcd) *Guard {
	return &Guard{
		log: log, etcd: client, resolver: net.DefaultResolver, led: fabric.LedByRoute, remove: fabric.ClearWay, heard: make(chan struct{}), byRoutes: map[netip.Addr]bool{},
	}
}

// Answered records that etcd has answered. It is called before the answer is acted on.
func (g *Guard) Answered() {
	g.mu.Lock()
	first := !g.answered
	g.answered = true
	g.mu.Unlock()
	if first {
		close(g.heard)
		g.Addrs()
	}
}

// Addrs returns the known addresses, and whether routes to workloads led there when each was first seen and etcd answered: etcd is then
// reached by such routes.
func (g *Guard) Addrs() map[netip.Addr]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[netip.Addr]bool{}
	for _, a := range g.etcd.Addrs() {
		if a.IsLoopback() {
			continue // no route leads there
		}
		led, known := g.byRoutes[a]
		if !known && g.answered {
			var err error
			if led, err = g.led(a); err != nil {
				g.log.Warn("whether etcd is a workload could not be found out, it is taken for none", "address", a, "err", err)
			}
			g.byRoutes[a] = led
		}
		all[a] = led
	}
	return all
}

// Needed returns the addresses that no workload may have.
func (g *Guard) Needed() (list []netip.Addr) {
	for a, byRoutes := range g.Addrs() {
		if !byRoutes {
			list = append(list, a)
		}
	}
	return list
}

// Run removes a former run's routes that cut the host off from etcd: the former agent may have created them before it knew the address, and
// only etcd can tell that they are wrong. They are restored if etcd doesn't answer without them either. Run ends when etcd has answered:
// from then on the plan has no such routes. The error is always nil.
func (g *Guard) Run(ctx context.Context) error {
	for g.silent(ctx, patience) {
		removed, restore, err := g.remove(g.configured(ctx)...)
		if err != nil {
			g.log.Error("routes that lead away from etcd could not be removed, trying again", "err", err)
		}
		if len(removed) == 0 {
			continue
		}
		g.log.Warn("etcd doesn't answer, and routes of this host lead there: trying without them", "routes", removed)
		if !g.silent(ctx, trial) && ctx.Err() == nil {
			return nil // the router creates the right ones
		}
		// A later agent would not know of them.
		if err := restore(); err != nil {
			g.log.Error("routes that were removed could not all be made again", "err", err)
		} else {
			g.log.Info("etcd doesn't answer without these routes either: they are made again", "routes", removed)
		}
		g.silent(ctx, pause-patience)
	}
	return nil
}

// silent waits, and reports whether etcd still has not answered.
func (g *Guard) silent(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-g.heard:
		return false
	case <-time.After(wait):
		return true
	}
}

// configured returns the known addresses, and those that DNS gives.
func (g *Guard) configured(ctx context.Context) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list := g.etcd.Addrs()
	for _, name := range g.etcd.Names() {
		found, _ := g.resolver.LookupNetIP(ctx, "ip", name) // failures are retried by the next call
		for _, a := range found {
			list = append(list, a.Unmap().WithZone(""))
		}
	}
	return list
}
