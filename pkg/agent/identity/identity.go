// SPDX-License-Identifier: Apache-2.0

// Package identity determines this host's addresses and writes them to etcd, together with those that it allocates for the host's tunnels.
package identity

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// Host writes this host's identity to etcd: its addresses, which it finds on its links, and those of its tunnels, which it allocates. It
// never blocks the router, which only leaves it notes. It writes nothing until the host's name is known to be its own, and no address that
// another live host has.
type Host struct {
	log      *slog.Logger
	store    *store.Client
	host     string
	methods  [2]plan.Method // of IPv4 and of IPv6
	as       model.ASNumber // 0 = don't write it
	reach    reach
	members  func() []netip.Addr // of etcd
	kinds    []plan.Tunnel       // those that a host may have
	naming   *mailbox.Value[string]
	health   *health.Monitor
	problems *problems.Ledger
	now      func() time.Time
	step     func(string) // where a test may end the process

	loop  *reconcile.Loop
	found mailbox.Signal

	mu   sync.Mutex
	note note

	// Only Run uses the rest.
	keys     effort
	tunnels  map[string]*tunnelEffort // by handle
	families [2]familyState
}

// Config configures a Host.
type Config struct {
	Node string // the host's name in the data model
	// Methods are how the host finds its IPv4 and its IPv6 address; the zero value means the defaults.
	Methods [2]plan.Method
	// AS is the host's own AS number, 0 = as etcd says.
	AS       model.ASNumber
	Naming   *mailbox.Value[string]
	Health   *health.Monitor
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// note holds the latest values from other goroutines.
type note struct {
	synced, ready bool
	// revision is the latest one received. Nothing is committed while it is below that of the last commit, awaits.
	revision, awaits int64
	// wished is the revision as of which the router computed its wishes.
	wished int64
	// changed is the revision at which this host's addresses in etcd last changed: an older view says nothing about conflicts.
	changed int64
	// stored are the keys that Host writes, as etcd holds them, by path.
	stored map[string]model.Entry
	pools  map[string]netip.Prefix // by path
	linked bool                    // the router has called Want
	links  plan.Links
	sight  int // counts the changes of links
	others [2][]netip.Addr
	// devices are the wanted tunnels.
	devices plan.Devices
	// own is what was found; judged says that conflicts, by family, are about that.
	own       [2]plan.Identity
	judged    bool
	conflicts conflicts
	// said are the addresses that this process wrote last.
	said [2]netip.Addr
}

// New returns a Host that knows nothing yet.
func New(cfg Config, client *store.Client) *Host {
	i := &Host{
		log: cfg.Logger, store: client, host: cfg.Node, methods: chosenMethods(cfg.Methods), as: cfg.AS,
		reach: reachByKernel, members: client.Addrs, kinds: plan.OwnTunnels(cfg.Node), naming: cfg.Naming, health: cfg.Health, problems: cfg.Problems,
		now: time.Now, step: killpoint.Step, found: mailbox.NewSignal(),
		note: note{stored: map[string]model.Entry{}, pools: map[string]netip.Prefix{}},
		keys: newEffort(), tunnels: map[string]*tunnelEffort{},
	}
	i.loop = reconcile.New(reconcile.Timing{}, func(ctx context.Context) (time.Duration, error) { return i.turn(ctx), nil }) // turn reports failures itself
	return i
}

// Update takes in one update of the watch, which must cover the host's settings, the pools and /calico/bgp/v1/host/<host>/. The router
// passes every update, in order. Update doesn't block.
func (i *Host) Update(u model.Update) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := &i.note
	changed := false
	if u.Resync {
		// etcd may be another one now, with unrelated revisions.
		changed, n.synced, n.ready, n.awaits, n.wished = true, true, false, 0, 0
		n.changed, n.judged = u.Revision, false
		clear(n.stored)
		clear(n.pools)
	}
	for _, e := range u.Entries {
		if e.Key == nil || e.Path != e.Key.Path() {
			continue
		}
		switch key := e.Key.(type) {
		case model.ReadyKey:
			ready, ok := e.Value.(model.Ready)
			n.ready, changed = ok && bool(ready), true
		case model.PoolKey:
			changed = true
			delete(n.pools, e.Path)
			if e.Exists() {
				n.pools[e.Path] = key.CIDR
			}
		default:
			if i.writes(e.Key) {
				changed = true
				if _, ok := e.Key.(model.BGPHostKey); ok {
					n.changed, n.judged = u.Revision, false
				}
				delete(n.stored, e.Path)
				if e.Exists() {
					n.stored[e.Path] = e
				}
			}
		}
	}
	awaited := n.revision < n.awaits && n.awaits <= u.Revision
	n.revision = u.Revision
	if changed || awaited {
		i.loop.Wake()
	}
}

// writes reports whether a key is one that Host writes.
func (i *Host) writes(key model.Key) bool {
	switch key := key.(type) {
	case model.BGPHostKey:
		return key.Host == i.host && key.Field != model.BGPHostReflector
	case model.HostConfigKey:
		return key.Host == i.host && slices.ContainsFunc(i.kinds, func(t plan.Tunnel) bool { return t.AddrConfig == key.Name })
	}
	return false
}

// Want passes what the router knows. Call it after each Flush, and when Found receives.
func (i *Host) Want(w board.HostView) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := &i.note
	changed := !n.linked
	if !n.linked || !reflect.DeepEqual(n.links, w.Links) {
		changed, n.links = true, w.Links
		n.sight++
	}
	if !n.linked || !reflect.DeepEqual(n.devices, w.Devices) {
		n.linked, n.devices, changed = true, cloneDevices(w.Devices), true
	}
	if !reflect.DeepEqual(n.others, w.Others) {
		n.others, changed = w.Others, true
	}
	changed = changed || n.wished < n.awaits && n.awaits <= w.Revision
	n.wished = w.Revision
	if w.Revision < n.changed {
		return // what etcd holds of this host now is not judged yet
	}
	var found conflicts
	for family, own := range n.own {
		found[family] = w.Conflict([]netip.Addr{own.Addr.Addr()}, slices.Clone(n.said[:]))
	}
	changed = changed || !n.judged || !found.equal(n.conflicts)
	n.judged, n.conflicts = true, found
	if changed {
		i.loop.Wake()
	}
}

// Found receives when another address was found: it is used after the next Want.
func (i *Host) Found() <-chan struct{} { return i.found }

// notes returns a copy of the latest notes.
func (i *Host) notes() note {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.note
	n.stored, n.pools = maps.Clone(n.stored), maps.Clone(n.pools)
	return n // links and devices are replaced, never changed
}

// Run acts on the notes until the context ends; the error is always nil. What is written stays.
func (i *Host) Run(ctx context.Context) error {
	i.naming.Notify(i.loop.Wake)
	return i.loop.Run(ctx)
}

func cloneDevices(d plan.Devices) plan.Devices {
	out := plan.Devices{Tunnels: slices.Clone(d.Tunnels), Releases: slices.Clone(d.Releases)}
	for i := range out.Tunnels {
		out.Tunnels[i].Pools = slices.Clone(out.Tunnels[i].Pools)
	}
	return out
}
