// SPDX-License-Identifier: Apache-2.0

// Package identity finds out who this host is and writes that to etcd: that its name is its own, its addresses, and those
// of its tunnels.
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

	"github.com/calico-go/calico/pkg/agent/report"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// Keeper writes to etcd who this host is: its addresses, and those of its
// tunnels. It finds the first by its links, allocates the second, and follows
// what becomes of both. It never holds up the router, which only leaves it notes.
//
// What another live host holds is refused: then that address is not in etcd as this
// host's, and of a host whose name is taken not even that it lives.
type Keeper struct {
	log   *slog.Logger
	store *store.Client
	host  string
	// methods are those of IPv4 and of IPv6.
	methods [2]plan.Method
	as      model.ASNumber // 0 = not this agent's to say
	reach   reach
	kinds   []plan.Tunnel // those that a host may have
	tells   Tells
	naming  *report.Naming
	life    *life
	now     func() time.Time
	step    func(string) // marks where a test may end the process

	wake  mailbox.Signal
	found mailbox.Signal

	// objection is how long a claim of the name waits for who lives to object.
	objection time.Duration

	mu     sync.Mutex
	note   note
	tenure tenure
	// outdated ends a write that follows from other links than those of the note, nil = none is at work.
	outdated context.CancelFunc

	// The rest is run's alone.
	keys      effort
	former    effort                   // to end the status of a former life
	tunnels   map[string]*tunnelEffort // by handle
	looked    [2]sight                 // by family
	departing [2]time.Time             // since when another address than the former is found
	home      [2]place                 // by family
	missed    [2]bool                  // the last find had no address of the family to offer
	stood     [2]netip.Addr            // the host's own that was last in etcd as such
	unsettled bool                     // life isn't on disk
}

// Config is what a Keeper is told when it starts.
type Config struct {
	Node string // the host's name in the data model
	// Methods are how the host finds its addresses, of IPv4 and of IPv6; the zero
	// value is as if none were chosen.
	Methods [2]plan.Method
	// AS is the host's own number, 0 = as etcd says.
	AS model.ASNumber
	// VarDir and RunDir are where LeasesName is kept: the second where the first takes
	// no writes. "" = nowhere.
	VarDir, RunDir string
	Lonely         bool // no other agent is at work in this network namespace
	Logger         *slog.Logger
}

// Tells is whom a Keeper tells how it stands.
type Tells struct {
	Report   *report.Reporter
	Health   *health.Monitor
	Problems *problems.Ledger
}

// Wish is what the router knows of the host.
type Wish struct {
	// Revision is up to which of etcd's all else is known.
	Revision int64
	Links    plan.Links // never changed, only replaced
	Devices  plan.Devices
	// Conflict is plan.Engine's, of what was flushed. It is called by Want alone.
	Conflict func(own, said []netip.Addr) error
}

// note is what others have left.
type note struct {
	synced, ready bool
	snapshot      int // counts those of etcd
	// revision is the latest that was folded; commits are not made on what is older
	// than the last of them, awaits.
	revision, awaits int64
	// wished is up to which revision the router knew what it wished for.
	wished int64
	// changed is when etcd last said something else of this host's addresses: a
	// wish that knows less says nothing about conflicts.
	changed int64
	// stored are the keys that are written here, as etcd holds them, by path.
	stored map[string]model.Entry
	pools  map[string]netip.Prefix // by path
	seen   bool                    // links are known
	linked bool                    // and all else of the router's
	links  plan.Links
	sight  int // counts the changes of links
	// devices are the tunnels that there shall be.
	devices plan.Devices
	// own is what was found; judged: conflicts, by family, are about that.
	own       [2]plan.Identity
	judged    bool
	conflicts conflicts
	// stale is what etcd says of the host and is another live host's by now, by family.
	stale [2]bool
	// said are the addresses that this process has written.
	said []netip.Addr
}

// New makes the identity of the agent's host. Until it is known that the name
// is the host's own, nothing is done in it.
func New(cfg Config, client *store.Client, tells Tells) *Keeper {
	i := &Keeper{
		log: cfg.Logger, store: client, host: cfg.Node, methods: chosenMethods(cfg.Methods), as: cfg.AS,
		reach: reachByKernel, kinds: plan.OwnTunnels(cfg.Node), tells: tells, now: time.Now, step: killpoint.Step,
		naming: tells.Report.Naming, life: lifeOf(cfg), objection: objectionTime,
		wake: mailbox.NewSignal(), found: mailbox.NewSignal(),
		note:    note{stored: map[string]model.Entry{}, pools: map[string]netip.Prefix{}},
		tunnels: map[string]*tunnelEffort{},
	}
	tells.Report.Ask(i.wake.Send, func(lease, beside int64) error { return i.life.take(lease, beside) })
	return i
}

// Fold takes in one update of the watch, which is to cover the host's settings,
// the pools and /calico/bgp/v1/host/<host>/. The router calls it for each, in
// their order; it does not wait.
func (i *Keeper) Fold(u model.Update) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := &i.note
	changed := false
	if u.Resync {
		// etcd may be another now, in which revisions mean something else.
		changed, n.synced, n.ready, n.awaits, n.wished = true, true, false, 0, 0
		n.changed, n.judged = u.Revision, false
		clear(n.stored)
		clear(n.pools)
		n.snapshot++
		i.tells.Report.Forget(n.snapshot)
		i.tenure.resync(model.StatusKey{Host: i.host}, u.Entries)
	}
	for _, e := range u.Entries {
		if e.Key == nil || e.Path != e.Key.Path() {
			continue
		}
		switch key := e.Key.(type) {
		case model.ReadyKey:
			ready, ok := e.Value.(model.Ready)
			n.ready, changed = ok && bool(ready), true
		case model.StatusKey:
			if key.Host == i.host {
				changed = true
				i.tenure.hear(e)
			}
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
	if i.tenure.questioned(i.life.isOwn) && i.naming.Waits() == "" {
		// Before anybody acts upon what else the update says.
		i.naming.Set(report.ClaimedByAnother)
	}
	awaited := n.revision < n.awaits && n.awaits <= u.Revision
	n.revision = u.Revision
	if changed || awaited {
		i.wake.Send()
	}
}

// writes says whether a key is one of those that are written here.
func (i *Keeper) writes(key model.Key) bool {
	switch key := key.(type) {
	case model.BGPHostKey:
		return key.Host == i.host && key.Field != model.BGPHostReflector
	case model.HostConfigKey:
		return key.Host == i.host && slices.ContainsFunc(i.kinds, func(t plan.Tunnel) bool { return t.AddrConfig == key.Name })
	}
	return false
}

// Want leaves a note of what the router knows. It is to be called after each
// Flush, and when Found says that there is something new to be judged.
func (i *Keeper) Want(w Wish) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := &i.note
	changed := i.look(w.Links)
	if !n.linked || !reflect.DeepEqual(n.devices, w.Devices) {
		n.linked, n.devices, changed = true, cloneDevices(w.Devices), true
	}
	changed = changed || n.wished < n.awaits && n.awaits <= w.Revision
	n.wished = w.Revision
	if w.Revision < n.changed {
		return // what etcd holds of this host now is yet to be judged
	}
	var found conflicts
	var stale [2]bool
	for family, own := range n.own {
		found[family] = w.Conflict([]netip.Addr{own.Addr.Addr()}, slices.Clone(n.said))
		stale[family] = w.Conflict([]netip.Addr{storedAddress(n.stored, i.host, family)}, slices.Clone(n.said)) != nil
	}
	changed = changed || !n.judged || !found.equal(n.conflicts) || stale != n.stale
	n.judged, n.conflicts, n.stale = true, found, stale
	if changed {
		i.wake.Send()
	}
}

// See leaves a note of the links, where the router knows no more than these. They are never
// changed, only replaced.
func (i *Keeper) See(l plan.Links) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.look(l) {
		i.wake.Send()
	}
}

// look notes the links, and says whether they are others than before. Those of the last
// time itself cost nothing, however many routes they have: that is why no copy is kept.
func (n *note) look(l plan.Links) bool {
	same := n.seen && reflect.DeepEqual(n.links, l)
	n.seen, n.links = true, l
	if !same {
		n.sight++
	}
	return !same
}

// look is the note's, and ends what follows from other links.
func (i *Keeper) look(l plan.Links) bool {
	changed := i.note.look(l)
	if changed && i.outdated != nil {
		i.outdated()
	}
	return changed
}

// whileSeen is a context that ends when other links are seen: a write that waits for etcd, which may be away because the
// host's link is, must not say when both are back that the host has no address.
func (i *Keeper) whileSeen(ctx context.Context, sight int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.outdated = cancel
	if i.note.sight != sight {
		cancel()
	}
	return ctx, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.outdated = nil
		cancel()
	}
}

// Found receives when another address was found: it is used once Want was called.
func (i *Keeper) Found() <-chan struct{} { return i.found }

// notes are what others have left until now.
func (i *Keeper) notes() note {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.note
	n.stored, n.pools, n.said = maps.Clone(n.stored), maps.Clone(n.pools), slices.Clone(n.said)
	return n // links and devices are replaced, never changed
}

// Run follows the notes until the context ends; the error is always nil. What is written stays.
func (i *Keeper) Run(ctx context.Context) error {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-i.wake:
		case <-retry.C:
		}
		if again := i.turn(ctx); again > 0 {
			retry.Reset(again)
		}
	}
}

func cloneDevices(d plan.Devices) plan.Devices {
	out := plan.Devices{Tunnels: slices.Clone(d.Tunnels), Releases: slices.Clone(d.Releases)}
	for i := range out.Tunnels {
		out.Tunnels[i].Pools = slices.Clone(out.Tunnels[i].Pools)
	}
	return out
}
