// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

const (
	// driftPause is the least time between two repairs that events ask for, so
	// that a fight with another program is not fought at full speed.
	driftPause = 20 * time.Millisecond
	// retryPause is when what the kernel refused is tried again at first.
	retryPause = time.Second
	// beatInterval is how often a loop that has nothing to do shows that it lives.
	beatInterval = 10 * time.Second
	// updateBuffer is how many updates may queue up behind one turn.
	updateBuffer = 256
)

// hostPath is what the loop drives: hostpath.Path.
type hostPath interface {
	Apply(ctx context.Context, desired []hostpath.Endpoint) (hostpath.Report, error)
	ApplySome(ctx context.Context, changed, removed []hostpath.Endpoint) (hostpath.Report, error)
	Subscribe(ctx context.Context) (<-chan hostpath.Event, error)
	Indexes(names ...string) map[string]int
	ShrinkMTU(ctx context.Context, mtu int) (changed int, err error)
	Close()
}

// system is the host as the loop sees it; a test puts another in its place.
type system struct {
	open              func(prefixes []string) (hostPath, error)
	openFirewall      func(alive func()) (firewall, error)
	connections       func(keep func(conntrack.Connection) bool) ([]conntrack.Tracked, error)
	deleteConnections func([]conntrack.Tracked) (int, error)
	interfaces        func(prefixes []string) ([]hostnet.Interface, error)
	routes            func() connections.Routes
	roles             func(prefixes []string) ([]hostnet.Role, error)
	writeMTU          func(mtu int) error
	writeNode         func() error
}

// loop is the one goroutine that owns the state: it takes in what happened, all
// that is queued, decides, applies, and answers.
type loop struct {
	log     *slog.Logger
	system  system
	metrics *metrics
	health  *health.Monitor
	report  *status.Reporter
	serving *serving.Servers

	updates chan model.Update
	waits   chan *wait
	leaves  chan *wait
	late    chan struct{}  // somebody has waited at the gate for long
	deleted mailbox.Signal // connections of addresses that were lost are
	// handover is where the router leaves what the loop must know of other hosts.
	handover *router.Handover
	asks     chan chan string // for a picture of the endpoints
	stopped  chan struct{}    // closed when the loop has ended
	expect   func(int64)      // store.Client's
	// etcdAddrs are etcdway.Way's needed.
	etcdAddrs func() []netip.Addr

	params   params.Params
	adoption *params.Adoption
	state    *state
	desired  *desired
	wall     *wall
	problems *problems.Ledger
	waiting  map[*wait]struct{}

	// What was logged last of each.
	waitsFor, hostProblem, nameProblem, mtuProblem, interfaceProblem string

	// overtaken are readings that changes overtook.
	overtaken struct{ state, interfaces problems.Passing }

	firewall    firewall
	tampered    <-chan nft.Event
	connections *connections.Cutter
	route       route
	suspicious  bool // somebody else changed the firewall
	repairs     repairs
	lastAudit   time.Time // of the firewall, because of that

	path      hostPath
	events    <-chan hostpath.Event
	unwatch   context.CancelFunc
	unsettled bool                // settings in etcd changed
	whole     bool                // the whole state is due
	applied   bool                // it has been applied once
	dirty     map[string]struct{} // endpoints to follow
	drifted   map[string]struct{} // interfaces to read
	unrouted  bool                // something switched the host's forwarding off
	absent    map[string]string   // interfaces that host endpoints name and that aren't there, by the endpoint's path
	strays    strays
	retry     *time.Timer
	pause     time.Duration // before the last retry
	lookAgain *time.Timer
	looked    time.Time     // when the host's own links were read for a notice
	lookPause time.Duration // how long no notice has them read again
	lastDrift time.Time
	flushes   sync.WaitGroup
}

// run turns until the context ends. What is programmed stays.
func (l *loop) run(ctx context.Context) error {
	if err := l.openPath(ctx); err != nil {
		return err
	}
	defer func() {
		l.unwatch()
		l.path.Close()
	}()
	if err := l.openFirewall(ctx); err != nil {
		return err
	}
	defer func() {
		if err := l.firewall.Close(); err != nil {
			l.log.Warn("the firewall's socket was not closed", "err", err)
		}
	}()
	l.connections = connections.New(connections.Config{
		Firewall: l.firewall, Policy: l.wall.enforced, Routes: l.system.routes, List: l.system.connections, Delete: l.system.deleteConnections,
		Count: func(over, denied int) {
			l.metrics.connections.Add(float64(over))
			l.metrics.cut.Add(float64(denied))
		},
		Deleted: l.deleted.Send, Logger: l.log,
	})
	l.flushes.Go(func() { l.connections.Run(ctx) })
	l.lookAgain = time.NewTimer(time.Hour)
	defer l.lookAgain.Stop()
	l.readInterfaces()
	l.unsettled = l.adoption.Review() // links may have come since prefixes were judged, and before they were watched
	l.readNeeded()
	l.mtu()
	l.tellHealth()
	l.retry = time.NewTimer(time.Hour)
	defer l.retry.Stop()
	interval := l.params.RefreshInterval
	audit := time.NewTicker(interval)
	defer audit.Stop()
	firewallInterval := l.params.FirewallInterval
	firewallAudit := time.NewTicker(firewallInterval)
	defer firewallAudit.Stop()
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	named := l.report.Naming.Subscribe()
	for {
		l.health.Turn()
		select {
		case <-ctx.Done():
			return nil
		case u := <-l.updates:
			l.fold(u)
		case e, ok := <-l.events:
			l.note(e, ok)
		case w := <-l.waits:
			l.waiting[w] = struct{}{}
		case w := <-l.leaves:
			l.leave(w)
			continue
		case <-l.late:
			if !l.state.deaf {
				continue
			}
			// Of etcd being back nobody tells, where nothing has changed there.
		case <-l.deleted:
		case _, ok := <-l.tampered:
			l.noteTampering(ok)
		case <-firewallAudit.C:
			l.firewall.Audit()
		case <-l.retry.C:
			maps.Copy(l.drifted, l.desired.failing)
		case <-l.lookAgain.C:
			l.look()
		case <-l.handover.News.Ready():
			l.noteRoutes()
		case <-l.route.lower:
			l.lowered()
		case <-named:
		case done := <-l.route.done:
			l.noteShrunk(done)
			continue
		case ask := <-l.asks:
			ask <- l.picture()
			continue
		case <-audit.C:
			l.audit()
		case <-beat.C:
			continue
		}
		l.health.Turn()
		l.state.deaf = l.health.Disconnected(0) != "" // before what ends it is taken in
		l.drain()
		if err := l.turn(ctx); err != nil {
			return err
		}
		if interval != l.params.RefreshInterval {
			interval = l.params.RefreshInterval
			audit.Reset(interval)
		}
		if firewallInterval != l.params.FirewallInterval {
			firewallInterval = l.params.FirewallInterval
			firewallAudit.Reset(firewallInterval)
		}
	}
}

// drain takes in all that is queued, so that a burst is applied at once.
func (l *loop) drain() {
	for range updateBuffer {
		select {
		case u := <-l.updates:
			l.fold(u)
		case w := <-l.waits:
			l.waiting[w] = struct{}{}
		default:
			return
		}
	}
}

func (l *loop) fold(u model.Update) {
	if u.Resync {
		l.readNeeded() // what of etcd is a workload may be known now
		l.metrics.resyncs.Inc()
	}
	e := l.state.fold(u)
	l.wall.engine.Update(e.entries...)
	l.unsettled = l.unsettled || e.settings
	maps.Copy(l.dirty, e.endpoints)
	for path := range e.objects {
		if _, ok := l.state.objects[path].key.(model.HostEndpointKey); ok {
			l.wall.hosts[path] = struct{}{} // sayInvalid reports on it
		} else if _, ok := e.endpoints[path]; !ok {
			l.problems.Report(path, l.state.objects[path].invalid)
		}
	}
}

// note takes in an event of the kernel.
func (l *loop) note(e hostpath.Event, ok bool) {
	l.unrouted = l.unrouted || e.Forwarding
	if !ok {
		l.events = nil // the timer remains
		l.indexAll()
		return
	}
	if e.All {
		l.indexAll()
	} else {
		l.index(e.Interfaces)
	}
	l.whole = l.whole || e.All
	l.route.fresh = l.route.fresh || e.All || len(e.Interfaces) > 0
	for _, name := range e.Interfaces {
		if l.desired.interfaces[name] != nil {
			l.drifted[name] = struct{}{}
		}
	}
	if e.All || e.Host {
		l.handover.Look()
		l.look()
	}
}

// look reads the host's own links and addresses anew. Where links come and go by
// the hundred it does so for a tenth of the time: each look reads all of them.
func (l *loop) look() {
	if since := time.Since(l.looked); since < l.lookPause {
		l.lookAgain.Reset(l.lookPause - since)
		return
	}
	start := time.Now()
	l.mtu()
	l.readInterfaces()
	l.unsettled = l.adoption.Review() || l.unsettled
	l.wall.shut.stale = true
	l.looked = time.Now()
	l.lookPause = max(driftPause, 10*l.looked.Sub(start))
}

// frozenBy says what must be known before anything is done; "" = nothing.
func (l *loop) frozenBy() string { return cmp.Or(l.state.waitsFor(), l.report.Naming.Waits()) }

// turn acts on what has been taken in.
func (l *loop) turn(ctx context.Context) error {
	reason := l.frozenBy()
	l.sayWaiting(reason)
	now := time.Now()
	var w work
	touched := map[string]struct{}{}
	// Settings say how to find out whose the name is, and change nothing before anything is
	// programmed.
	settles := reason == "" || l.state.waitsFor() == "" && !l.applied
	if settles && l.unsettled {
		if err := l.settle(ctx); err != nil {
			return err
		}
		l.route.configured = false
	}
	if settles {
		l.tellRouter()
	}
	if reason == "" {
		touched, l.dirty = l.dirty, touched
		w = l.desired.follow(l.state, touched, now)
		l.lose(w.lost)
		l.judgeShut(touched)
		changes := l.wall.follow(l.desired, touched)
		l.firewall.Update(changes)
		l.index(interfacesOf(changes))
		l.sayInvalid()
		if len(l.strays.said) > 0 && len(touched) > 0 {
			l.sayStrays() // one may have its endpoint back
		}
		l.adoption.SayMisfit(l.state.misfit())
	}
	// While there is something to wait for, what was desired before stays, and
	// is kept repaired: an etcd that was emptied cuts off nobody.
	if (reason == "" || l.applied) && !l.awaitsRoutes(now) {
		l.enforce(ctx, w, now)
	}
	l.answer()
	l.tell(touched)
	l.shrink(ctx)
	l.connections.Add(l.wall.takeWork()) // last: it competes for the processor with those who wait at the gate
	return nil
}
