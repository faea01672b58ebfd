// SPDX-License-Identifier: Apache-2.0

// Package router keeps the way to other hosts: it takes in what etcd, the kernel and BGP say, has plan.Engine decide, and
// programs routes and tunnels.
package router

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/identity"
	"github.com/calico-go/calico/pkg/agent/inbox"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// wayOut is what the router drives: fabric.Fabric.
type wayOut interface {
	Apply(context.Context, plan.State) (fabric.Report, error)
	ApplySome(context.Context, plan.Changes) (fabric.Report, error)
	Unchanged(context.Context) (bool, error)
	Subscribe(context.Context) (<-chan struct{}, error)
	Close()
}

// lessons is where the router hears what BGP learned: bgp.Subscription.
type lessons interface {
	Ready() <-chan struct{}
	Take() []plan.Learned
	LookAgain([]netip.Prefix)
}

// leftover is who deletes the host's blocks from which nothing may be allocated: leftovers.Keeper.
type leftover interface {
	Note(now time.Time, blocks []netip.Prefix)
}

// Network is the host's part in the network as the router sees it; a test puts
// another in its place.
type Network struct {
	open   func(prefixes []string) (wayOut, error)
	links  func(prefixes []string) (plan.Links, error)
	routes func() ([]plan.Route, error)
	// carriers is how often links have lost their carrier.
	carriers func(names []string) (map[string]uint32, error)
	// etcd are etcdway.Way's addresses.
	etcd    func() map[netip.Addr]bool
	speaker speaker
	lessons lessons
	// readRouterID gives the BGP identifier of a former run, writeRouterID notes it.
	readRouterID  func() (netip.Addr, error)
	writeRouterID func(netip.Addr) error
	// readSpoken gives what BGP was told last by a former run of that identifier, writeSpoken notes it; hasSpoken says
	// whether there is such a note.
	hasSpoken   func() bool
	readSpoken  func(netip.Addr) (bgp.Desired, error)
	writeSpoken func(bgp.Desired) error
}

// Router is the one goroutine that keeps the way to other hosts: it takes in what
// etcd, the kernel and BGP say, has the engine decide, and programs routes and
// tunnels. It is not the loop's, so that nothing of other hosts delays the gate or
// the firewall.
type Router struct {
	log      *slog.Logger
	host     string
	network  Network
	inbox    *inbox.Inbox
	handover *Handover
	talker   *talker
	memory   *memory
	identity *identity.Keeper // nil = others say who this host is
	naming   *status.Naming   // nil = the name is the host's own
	leftover leftover         // nil = nobody deletes leftovers
	problems *problems.Ledger
	health   *health.Monitor
	metrics  Metrics
	// Asks takes a channel and sends on it, from Run, what the router wants, for people.
	Asks   chan chan string
	counts chan chan map[netip.Addr]int // for the routes by neighbour

	params  params.Params
	settled bool // params are those that stand in etcd, too
	engine  *plan.Engine
	state   plan.State
	// routerID is BGP's, in use or of a former run; invalid = none.
	routerID netip.Addr
	unnoted  bool // it could not be written
	fabric   wayOut
	events   <-chan struct{}
	unwatch  context.CancelFunc

	begun    time.Time // when the engine was first told of etcd
	retained bool      // routes of a former run are kept until BGP has learned
	waitsFor string    // what was logged last
	acts     bool      // something was done in the host's name
	recalled bool      // until then BGP says what a former run said

	// bridged are routes that are kept until BGP tells of them, or until bridgeEnd.
	bridged    map[netip.Prefix]plan.Route
	bridgeEnd  time.Time
	unbridging *time.Timer

	// leaves are tunnels that are no longer needed and still take packets.
	leaves  map[plan.TunnelKind]leaving
	left    *time.Timer
	opening bool // tunnels are made, and routes are as they were

	// withdraws are prefixes of ours that BGP tells the mesh of until then, though their pool is encapsulated.
	withdraws   map[netip.Prefix]time.Time
	withdrawing *time.Timer

	whole     bool // everything is to be compared with the kernel
	applied   bool // that was done once
	look      bool // the kernel is to be looked at: the host's own links and routes, and ours
	audit     bool // it is to be seen whether ours are as they were
	links     plan.Links
	lookAgain *time.Timer
	looked    time.Time
	lookPause time.Duration
	retry     *time.Timer
	pause     time.Duration
	told      News
	toldOnce  bool
	lacks     map[string]error // what the kernel doesn't hold, by subject
	clock     time.Time        // when it was looked at
	carriers  carriers
	flapping  []string         // links, sorted
	trouble   [troubles]string // what was logged last
	passing   [troubles]problems.Passing
	unsaid    map[plan.ProblemID]time.Time // since when there are problems that are said if they last
	saying    *time.Timer
}

// Config is what a router is told when it starts.
type Config struct {
	Node      string // the host's name in the data model
	Handover  *Handover
	Identity  *identity.Keeper // nil = others say who this host is
	Naming    *status.Naming   // nil = the name is the host's own
	Leftovers leftover         // nil = nobody deletes leftovers
	Problems  *problems.Ledger
	Health    *health.Monitor
	Metrics   Metrics
	Logger    *slog.Logger
}

// New is of a router that has heard of nothing. Run, and Talk beside it, have it act.
func New(cfg Config, n Network) *Router {
	return &Router{
		log: cfg.Logger, host: cfg.Node, network: n, inbox: inbox.New(), handover: cfg.Handover, identity: cfg.Identity, naming: cfg.Naming, leftover: cfg.Leftovers,
		talker: newTalker(cfg.Logger, n.speaker, cfg.Problems, cfg.Health), memory: newMemory(cfg.Logger, n.writeSpoken), problems: cfg.Problems, health: cfg.Health, metrics: cfg.Metrics,
		Asks: make(chan chan string), counts: make(chan chan map[netip.Addr]int), params: params.Resolve().Params,
		lacks: map[string]error{}, bridged: map[netip.Prefix]plan.Route{}, leaves: map[plan.TunnelKind]leaving{}, withdraws: map[netip.Prefix]time.Time{}, unsaid: map[plan.ProblemID]time.Time{}, carriers: carriers{}, clock: time.Now(),
	}
}

// Hear takes in one update of the watch. It doesn't wait.
func (r *Router) Hear(u model.Update) {
	if r.identity != nil {
		r.identity.Hear(u)
	}
	r.inbox.Put(u)
}

// Waits says what etcd must be known to hold before anything is done; "" = nothing more.
func (r *Router) Waits() string { return r.inbox.Waits() }

// Talk has BGP do what the router desires, until the context ends; then sessions end as for a restart. It runs
// beside Run. The error is always nil.
func (r *Router) Talk(ctx context.Context) error {
	var keeping sync.WaitGroup
	keeping.Go(func() { r.memory.run(ctx) })
	defer keeping.Wait()
	return r.talker.run(ctx)
}

// Hush ends BGP's sessions as for a restart, where Talk was never called.
func (r *Router) Hush(ctx context.Context) { r.talker.close(ctx) }

// Run turns until the context ends. What is programmed stays. The error is always nil.
func (r *Router) Run(ctx context.Context) error {
	defer r.closeFabric()
	r.retry = time.NewTimer(time.Hour)
	defer r.retry.Stop()
	r.lookAgain = time.NewTimer(time.Hour)
	defer r.lookAgain.Stop()
	r.unbridging = time.NewTimer(time.Hour)
	defer r.unbridging.Stop()
	r.left = time.NewTimer(time.Hour)
	defer r.left.Stop()
	r.withdrawing = time.NewTimer(time.Hour)
	defer r.withdrawing.Stop()
	r.saying = time.NewTimer(time.Hour)
	defer r.saying.Stop()
	recall := time.NewTimer(recallAfter)
	defer recall.Stop()
	interval := r.params.RefreshInterval
	audit := time.NewTicker(interval)
	defer audit.Stop()
	var found, named <-chan struct{}
	if r.identity != nil {
		found = r.identity.Found()
	}
	if r.naming != nil {
		named = r.naming.Subscribe()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.inbox.Wake:
		case <-r.handover.forRouter:
		case <-r.network.lessons.Ready():
			if r.engine == nil {
				continue // what BGP recalled brings is taken when there is one
			}
		case <-found:
		case <-named:
		case _, ok := <-r.events:
			if !ok {
				r.events = nil // the timer remains
			}
			r.look = true
		case <-audit.C:
			r.audit, r.look = true, r.look || r.events == nil
			r.lookAtPassed()
			r.lookAtClock(time.Now())
			r.lookAtCarriers(time.Now())
			r.noteLeftovers(time.Now())
			if r.routerID.IsValid() {
				r.noteID() // it may have been deleted
			}
			r.memory.again(r.network.hasSpoken())
		case <-r.lookAgain.C:
		case <-r.unbridging.C:
		case <-r.left.C:
		case <-r.withdrawing.C:
		case <-r.retry.C:
			r.whole = true
		case <-r.saying.C:
			r.sayUnsaid(time.Now())
			continue
		case <-recall.C:
			r.recall()
			continue
		case ask := <-r.Asks:
			ask <- r.picture()
			continue
		case ask := <-r.counts:
			ask <- r.used()
			continue
		}
		r.obey()
		r.turn(ctx)
		if interval != r.params.RefreshInterval {
			interval = r.params.RefreshInterval
			audit.Reset(interval)
		}
	}
}

// obey takes in what the loop has left.
func (r *Router) obey() {
	o := r.handover.takeOrders()
	r.look = r.look || o.look
	if o.params == nil {
		return
	}
	before := r.params
	r.params, r.settled = *o.params, true
	if r.fabric != nil && !slices.Equal(before.InterfacePrefixes, r.params.InterfacePrefixes) {
		r.closeFabric()
		r.look = true
	}
}

// turn acts on what has been taken in. What fails is tried again after a while.
func (r *Router) turn(ctx context.Context) {
	etcd := r.inbox.Waits()
	waits := cmp.Or(etcd, r.naming.Waits())
	if waits != r.waitsFor && r.engine != nil {
		r.log.Info("etcd and the routes to other hosts", "waiting", waits)
	}
	r.waitsFor = waits
	r.takeBack()
	if r.engine == nil && (!r.settled || etcd != "" || !r.begin()) {
		return // the loop has yet to read the settings in etcd, or nothing is to be decided
	}
	r.takeIn()
	if !r.open(ctx) {
		return
	}
	complete := r.network.speaker.Complete() // before what was learned until then is taken
	r.learn(r.network.lessons.Take())
	r.release(complete)
	r.unbridge()
	r.glance(ctx)
	c, opens := r.decide()
	first := !r.acts
	if first && r.naming.Waits() != "" {
		r.wish()
		return
	}
	r.acts, r.whole = true, r.whole || first
	r.announce(ctx, c, first)
	r.opening = opens && !first
	r.wish()
	if r.opening {
		c = r.openTunnels(ctx, c)
		r.wish()
	}
	if r.withdraw(time.Now()) || first || c.Speaker != nil || len(c.Neighbours) > 0 || len(c.Advertisements) > 0 {
		r.identify()
		r.speak()
	}
	r.program(ctx, c)
	r.forget(ctx, time.Now())
}

// takeIn has the engine take in what etcd says. A name that is another's leaves what was done
// as it is. Where nothing was done yet all is decided, for the identity to know, and nothing done.
func (r *Router) takeIn() {
	r.engine.SetSettings(r.routing())
	r.engine.Update(r.inbox.Take(func() bool { return r.acts && r.naming.Waits() != "" })...)
	r.engine.SetEtcd(r.network.etcd())
}

// decide says what changes by what was taken in, and whether that opens a tunnel.
func (r *Router) decide() (c plan.Changes, opens bool) {
	c = r.bridge(r.engine.Compute())
	opens = r.opens(c)
	c = r.leave(c, time.Now())
	r.keepTelling(c, time.Now())
	r.metrics.count(r.state, c)
	r.state.Apply(c)
	r.metrics.size(r.state)
	r.sayProblems(c, time.Now())
	return c, opens
}

// noteLeftovers says which of the host's blocks nothing may be allocated from any more.
func (r *Router) noteLeftovers(now time.Time) {
	if r.leftover == nil {
		return
	}
	var blocks []netip.Prefix
	if r.engine != nil && r.acts && r.inbox.Waits() == "" && r.naming.Waits() == "" {
		blocks = r.engine.Leftovers()
	}
	r.leftover.Note(now, blocks)
}

// announce hands the loop what it must know of changes.
func (r *Router) announce(ctx context.Context, c plan.Changes, first bool) {
	if first || len(c.Hosts) > 0 || c.Devices != nil || c.MTU != nil {
		r.tellLoop(ctx)
	}
}

// well logs what is wrong, when that changes, and says whether nothing is.
func (r *Router) well(what int, message string, err error) bool {
	if r.passing[what].Hide(err, time.Now()) {
		r.log.Debug(message, "err", err)
		return false
	}
	text := problems.Reason(err)
	if text != r.trouble[what] {
		if err == nil {
			r.log.Info("the way to other hosts is in order again", "was", r.trouble[what])
		} else {
			r.log.Error(message, "err", err)
		}
		r.trouble[what] = text
	}
	return err == nil
}

// What trouble is kept of.
const (
	formerTrouble  = iota // the routes of a former run
	openTrouble           // the kernel's side
	linkTrouble           // the host's own links
	carrierTrouble        // what they have lost
	applyTrouble          // programming
	troubles
)
