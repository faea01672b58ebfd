// SPDX-License-Identifier: Apache-2.0

// Package etcdway knows the addresses of etcd, and keeps the host's own routes out of the way to them.
package etcdway

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/store"
)

const (
	// wayPatience is how long etcd has, when the agent starts, until routes that a former
	// run left in the way are taken away.
	wayPatience = 5 * time.Second
	// wayTrial is how long they stay away where etcd doesn't answer then either: it may
	// be a workload, which is reached by no other way.
	wayTrial = 30 * time.Second
	// wayPause is the time between two trials.
	wayPause = time.Minute
)

// Way knows the addresses of etcd, and keeps the host's own routes out of the way to
// them. It is of router and loop, which ask it.
type Way struct {
	log   *slog.Logger
	addrs func() []netip.Addr // store.Client's
	names func() []string     // store.Client's
	// led says whether a route to a workload leads to an address, and clearWay takes away
	// those of a former run that do: kernel's.
	led      func(netip.Addr) (bool, error)
	clearWay func(...netip.Addr) ([]netip.Prefix, func() error, error)
	resolve  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	heard    chan struct{} // closed when etcd has answered

	mu       sync.Mutex
	answered bool
	byRoutes map[netip.Addr]bool // of those that were seen since
}

// New is of a client of etcd, of which nothing was heard yet.
func New(log *slog.Logger, client *store.Client) *Way {
	return &Way{
		log: log, addrs: client.Addrs, names: client.Names, led: fabric.LedByRoute, clearWay: fabric.ClearWay,
		resolve: net.DefaultResolver.LookupNetIP, heard: make(chan struct{}), byRoutes: map[netip.Addr]bool{},
	}
}

// Hear notes that etcd has answered, before anything is made of what it said.
func (w *Way) Hear() {
	w.mu.Lock()
	first := !w.answered
	w.answered = true
	w.mu.Unlock()
	if first {
		close(w.heard)
		w.All()
	}
}

// All are the known addresses. Of each it says whether routes to workloads led there
// when it was first seen and etcd answered: such routes are its way then, and not in it.
func (w *Way) All() map[netip.Addr]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[netip.Addr]bool{}
	for _, a := range w.addrs() {
		if a.IsLoopback() {
			continue // no route leads there
		}
		led, known := w.byRoutes[a]
		if !known && w.answered {
			var err error
			if led, err = w.led(a); err != nil {
				w.log.Warn("whether etcd is a workload could not be found out, it is taken for none", "address", a, "err", err)
			}
			w.byRoutes[a] = led
		}
		all[a] = led
	}
	return all
}

// Needed are those that no workload may have.
func (w *Way) Needed() (list []netip.Addr) {
	for a, byRoutes := range w.All() {
		if !byRoutes {
			list = append(list, a)
		}
	}
	return list
}

// KeepClear has a host find back to etcd that routes of its own have cut off: a former run may
// have made them, of another version or before it knew the address, and nothing but etcd tells
// that they are wrong. It ends when etcd has answered: from then on the engine makes none.
func (w *Way) KeepClear(ctx context.Context) error {
	timer := time.NewTimer(wayPatience)
	defer timer.Stop()
	for {
		if !w.silent(ctx, timer) {
			return nil
		}
		gone, restore, err := w.clearWay(w.configured(ctx)...)
		if err != nil {
			w.log.Error("routes in the way to etcd could not be taken away, trying again", "err", err)
		}
		timer.Reset(wayPatience)
		if len(gone) == 0 {
			continue
		}
		w.log.Warn("etcd doesn't answer, and routes of this host lead there: trying without them", "routes", gone)
		timer.Reset(wayTrial)
		if !w.silent(ctx, timer) {
			return w.settled(restore)
		}
		for err := restore(); err != nil; err = restore() {
			w.log.Error("routes that were taken away could not all be made again, trying again", "err", err)
			timer.Reset(wayPatience)
			if !w.silent(ctx, timer) {
				return w.settled(restore)
			}
		}
		w.log.Info("etcd doesn't answer without these routes either: they are made again", "routes", gone)
		timer.Reset(wayPause)
	}
}

// settled makes the routes again where it is the agent that ends, for the next one doesn't know
// of them; where etcd has answered, the router makes those that are right.
func (w *Way) settled(restore func() error) error {
	select {
	case <-w.heard:
		return nil
	default:
		return restore()
	}
}

// silent waits, and says whether etcd still has not answered.
func (w *Way) silent(ctx context.Context, timer *time.Timer) bool {
	select {
	case <-ctx.Done():
		return false
	case <-w.heard:
		return false
	case <-timer.C:
		return true
	}
}

// configured are the addresses that are known, and those that DNS gives.
func (w *Way) configured(ctx context.Context) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, wayPatience)
	defer cancel()
	list := w.addrs()
	for _, name := range w.names() {
		found, _ := w.resolve(ctx, "ip", name) // what has none now is asked for again
		for _, a := range found {
			list = append(list, a.Unmap().WithZone(""))
		}
	}
	return list
}
