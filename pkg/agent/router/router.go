// SPDX-License-Identifier: Apache-2.0

// Package router keeps the routes to other hosts: it takes in what etcd, the kernel and BGP say, lets plan.Planner decide, and programs
// routes and tunnels.
package router

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/policy"
)

const (
	// leastPause is the first pause before a failure is retried.
	leastPause = time.Second
	// leastLook is the least time between two looks at the kernel that events cause.
	leastLook = 20 * time.Millisecond
	// leastRetention is how long a host that doesn't speak BGP keeps the routes learned before the agent restarted: its address may be on
	// its way to etcd.
	leastRetention = 2 * time.Minute
	// recallAfter is how long a starting agent waits for etcd before BGP announces its last state. A start that finds etcd in order takes
	// less; neighbours keep the host's routes for its restart time.
	recallAfter = 2 * time.Second
	// firewallPatience is how long a new tunnel waits for the firewall to know which hosts it may take packets from.
	firewallPatience = time.Second
	// mostPassed is how many prefixes BGP is asked for paths other than the best, each time.
	mostPassed = 1000
)

// leftover deletes the host's blocks from which nothing may be allocated: leftovers.Blocks.
type leftover interface {
	Note(now time.Time, blocks []netip.Prefix)
}

// Router keeps the routes to other hosts in one goroutine: it takes in what etcd, the kernel and BGP say, lets the plan decide, and
// programs routes and tunnels. It has its own goroutine so that other hosts never delay the gate or the firewall.
type Router struct {
	log          *slog.Logger
	network      network
	handover     *Handover
	bgp          *bgpUpdater
	kernel       *kernel
	identity     identity               // nil = this host's identity is managed elsewhere
	naming       *mailbox.Value[string] // nil = the name is the host's own
	leftover     leftover               // nil = keep leftovers
	status       status                 // nil = nobody asks
	reports      *reports
	disturbances *disturbances
	metrics      Metrics
	asks         chan func() // functions for Run to call

	plan       *plan.Planner
	settings   Settings
	configured bool // settings include those in etcd
	etcd       etcd
	links      plan.Links
	begun      time.Time // when former routes were read; zero = not yet
	retained   bool      // former routes are kept until BGP has learned all
	acts       bool      // something was done in the host's name
	memory     memory
	waitsFor   string // as last logged
	told       *News  // nil = nothing yet

	look  looking
	retry retrying
}

// memory is BGP's state from a former run of the agent.
type memory struct {
	routerID netip.Addr // BGP's identifier, in use or of the former run; invalid = none
	desired  bgp.Desired
	err      error // why desired can't be used
	recalled bool  // BGP was given desired again, or can't or needn't be
}

// looking says when to read the host's own links and routes, and to read ours back.
type looking struct {
	due   bool
	after time.Time // not before this
}

// retrying says when to retry what failed.
type retrying struct {
	at    time.Time // zero = nothing failed
	pause time.Duration
}

// Config configures a Router.
type Config struct {
	Node      string // the host's name in the data model
	Settings  Settings
	Handover  *Handover
	Identity  identity               // nil = this host's identity is managed elsewhere
	Naming    *mailbox.Value[string] // nil = the name is the host's own
	Leftovers leftover               // nil = keep leftovers
	Status    status                 // nil = nobody asks
	Problems  *problems.Ledger
	Health    *health.Monitor
	Metrics   Metrics
	Logger    *slog.Logger
}

// Settings are the agent's parameters that concern the router.
type Settings struct {
	Prefixes []string      // of workload interfaces' names
	Refresh  time.Duration // how often the kernel's state is read back
	Routing  plan.Settings
}

// identity determines this host's identity: identity.Host.
type identity interface {
	// Want passes what is known of the host; Found receives when to call it again.
	Want(board.HostView)
	Found() <-chan struct{}
}

// status is told up to which revision of etcd all routes are as they should be.
type status interface{ Routed(revision int64) }

// New returns a Router that knows nothing yet. Run and RunBGP, concurrently, make it act.
func New(cfg Config, n network) *Router {
	reports := newReports(cfg.Logger, cfg.Problems)
	return &Router{
		log: cfg.Logger, network: n, handover: cfg.Handover, identity: cfg.Identity, naming: cfg.Naming, leftover: cfg.Leftovers, status: cfg.Status,
		bgp: &bgpUpdater{
			log: cfg.Logger, speaker: n.speaker, state: n.state, problems: cfg.Problems, health: cfg.Health,
			desired: mailbox.New[bgp.Desired](), wake: cfg.Handover.wake,
		},
		kernel:       &kernel{open: n.kernel.Open, reports: reports, health: cfg.Health, metrics: cfg.Metrics, whole: true},
		disturbances: &disturbances{losses: n.kernel.CarrierLosses, reports: reports, metrics: cfg.Metrics, counts: map[string][]carrierCount{}, clock: time.Now()},
		reports:      reports, metrics: cfg.Metrics, asks: make(chan func()),
		settings: cfg.Settings, plan: plan.NewPlanner(cfg.Node, plan.Settings{}), look: looking{due: true},
	}
}

// Update takes in one update of the watch. It doesn't block.
func (r *Router) Update(u model.Update) {
	r.handover.orders.Update(func(o orders) orders {
		o.etcd.add(u)
		return o
	})
}

// RunBGP makes BGP do what the router desires until the context ends; then it ends sessions as for a restart. It runs concurrently with
// Run. The error is always nil.
func (r *Router) RunBGP(ctx context.Context) error {
	r.bgp.run(ctx)
	return nil
}

// CloseGracefully ends BGP's sessions as for a restart, if RunBGP was never called.
func (r *Router) CloseGracefully(ctx context.Context) { r.bgp.close(ctx) }

// Run takes turns until the context ends. What is programmed stays. The error is always nil.
func (r *Router) Run(ctx context.Context) error {
	defer r.kernel.close()
	r.memory.routerID, r.memory.desired, r.memory.err = r.network.state.read()
	start := time.Now()
	wake := time.NewTimer(recallAfter)
	defer wake.Stop()
	interval := r.settings.Refresh
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
		case <-r.handover.orders.Ready():
		case <-r.network.learned.Ready():
		case <-found:
		case <-named:
		case _, ok := <-r.kernel.events:
			if !ok {
				r.kernel.events = nil // audits remain
			}
			r.look.due = true
		case <-audit.C:
			r.audit(time.Now())
		case <-wake.C:
		case ask := <-r.asks:
			ask()
			continue
		}
		r.takeOrders()
		r.turn(ctx)
		now := time.Now()
		r.reports.tell(r.plan.State().Problems, now)
		recall := start.Add(recallAfter)
		if !r.acts && !r.memory.recalled && !now.Before(recall) {
			r.recall()
		}
		wake.Reset(r.next(now, recall).Sub(now))
		if interval != r.settings.Refresh {
			interval = r.settings.Refresh
			audit.Reset(interval)
		}
	}
}

// next returns when there is something to do even if nothing happens.
func (r *Router) next(now, recall time.Time) time.Time {
	next := now.Add(time.Hour)
	times := []time.Time{r.plan.Next(), r.retry.at, r.reports.due}
	if r.look.due {
		times = append(times, r.look.after)
	}
	if recall.After(now) {
		times = append(times, recall)
	}
	for _, t := range times {
		if !t.IsZero() && !t.After(now) {
			t = now.Add(leastPause) // it came during other work, or can't be handled yet
		}
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return next
}

// takeOrders takes in what others have passed.
func (r *Router) takeOrders() {
	o, _ := r.handover.orders.Take()
	r.etcd.update(o.etcd)
	r.look.due = r.look.due || o.look
	if o.settings == nil {
		return
	}
	before := r.settings
	r.settings, r.configured = *o.settings, true
	if !slices.Equal(before.Prefixes, r.settings.Prefixes) {
		r.kernel.close()
		r.look.due = true
	}
}

// again schedules a retry, with growing pauses.
func (r *Router) again() {
	r.retry.pause = min(max(2*r.retry.pause, leastPause), r.settings.Refresh)
	r.retry.at = time.Now().Add(r.retry.pause)
}

// turn acts on what has been taken in. Failures are retried after a while.
func (r *Router) turn(ctx context.Context) {
	now := time.Now()
	if !r.retry.at.IsZero() && !now.Before(r.retry.at) {
		r.retry.at, r.kernel.whole = time.Time{}, true
	}
	waits := cmp.Or(r.etcd.waits(), r.naming.Get())
	if waits != r.waitsFor && !r.begun.IsZero() {
		if waits == "" {
			r.log.Info("routes to other hosts follow etcd")
		} else {
			r.log.Info("routes to other hosts stay as they are", "waiting", waits)
		}
	}
	r.waitsFor = waits
	if r.begun.IsZero() && (!r.configured || r.etcd.waits() != "" || !r.begin(now)) {
		return // the settings in etcd have yet to be read, or nothing can be decided
	}
	r.takeEtcd(now)
	if !r.kernel.ready(ctx, r.settings.Prefixes) {
		r.again()
		return
	}
	complete := r.network.speaker.Complete() // before taking what was learned until then
	r.plan.Learn(r.network.learned.Take()...)
	r.release(complete, now)
	looked := r.readLinks(now)
	c := r.plan.Plan(now)
	r.metrics.count(r.plan.State())
	r.reports.changed(c, now)
	first := !r.acts
	if first && r.naming.Get() != "" {
		r.tellIdentity()
		return
	}
	r.acts = true
	r.announceTunnels(ctx)
	r.tellIdentity()
	if first || c.Speaker != nil || len(c.Neighbours) > 0 || len(c.Advertisements) > 0 {
		r.speak()
	}
	switch tried, ok := r.kernel.apply(ctx, r.plan.State(), c); {
	case tried && !ok:
		r.again()
	case tried && !r.look.due:
		r.retry = retrying{}
	}
	if r.kernel.applied {
		r.plan.Programmed()
	}
	r.announce()
	if r.status != nil && waits == "" && r.kernel.applied && !r.kernel.whole {
		r.status.Routed(r.etcd.revision)
	}
	if looked { // where links come and go by the hundred, looking takes at most a tenth of the time
		r.look.after = time.Now().Add(max(leastLook, 10*time.Since(now)))
	}
}

// begin makes the plan keep the routes that a former run of the agent learned, until BGP has learned them again.
func (r *Router) begin(now time.Time) bool {
	former, err := r.network.kernel.FormerRoutes()
	if !r.reports.ok("the routes that BGP learned before could not be read, trying again", err) {
		r.again()
		return false
	}
	r.plan.Retain(former...)
	r.begun, r.retained = now, len(former) > 0
	return true
}

// release ends that.
func (r *Router) release(complete bool, now time.Time) {
	speaks := r.plan.State().Speaker.AS != 0
	if r.retained && r.kernel.applied && (speaks && complete || !speaks && now.Sub(r.begun) > leastRetention) {
		r.retained = false
		r.plan.Retain()
	}
}

// takeEtcd passes etcd's content to the plan. While the name is another host's, what was done stays. If nothing was done yet, the plan
// still decides, to inform the identity, but nothing is carried out.
func (r *Router) takeEtcd(now time.Time) {
	settings := r.settings.Routing
	settings.RouterID = r.memory.routerID
	r.plan.SetSettings(settings)
	r.plan.SetEtcd(r.network.etcd())
	if r.etcd.waits() == "" && (!r.acts || r.naming.Get() == "") && r.etcd.pending.heard {
		r.plan.Take(r.etcd.pending.update(), now)
		r.etcd.revision, r.etcd.pending = r.etcd.pending.revision, fold{}
	}
}

// readLinks reads the host's own links and routes if they may have changed, and has ours read back. The kernel lists them together with all
// workloads', so audits don't read them: events say when they change.
func (r *Router) readLinks(now time.Time) (looked bool) {
	if !r.look.due || now.Before(r.look.after) {
		return false
	}
	links, err := r.network.kernel.Links(r.settings.Prefixes)
	r.kernel.whole = true
	if !r.reports.ok("the host's own links could not be read; what was known of them is used", err) {
		r.again()
		r.look.after = r.retry.at
		return false
	}
	r.look.due, r.links = false, links
	r.plan.SetLinks(links)
	if len(r.disturbances.counts) == 0 { // losses count from now on
		r.disturbances.look(links.Links, now)
	}
	return true
}

// audit schedules reading back all our routes and tunnels, and checks what has no events.
func (r *Router) audit(now time.Time) {
	r.kernel.whole = true
	r.look.due = r.look.due || r.kernel.events == nil
	r.disturbances.lookAtClock(now)
	r.disturbances.look(r.links.Links, now)
	if passed := r.plan.Passed(mostPassed); len(passed) > 0 {
		r.network.learned.LookAgain(passed)
	}
	if r.leftover == nil {
		return
	}
	var blocks []netip.Prefix
	if r.acts && r.waitsFor == "" {
		blocks = r.plan.Leftovers()
	}
	r.leftover.Note(now, blocks)
}

// news returns what the rest of the agent must know of the present plan.
func (r *Router) news() News {
	state := r.plan.State()
	n := News{MTU: state.MTU.Pods, Hosts: maps.Clone(state.Hosts), Routers: map[netip.Addr]string{}}
	for _, route := range r.links.Routes {
		if route.Gateway.IsGlobalUnicast() { // other gateways are no endpoint's address
			n.Routers[route.Gateway] = route.Device
		}
	}
	for p, route := range state.Routes {
		if route.Origin == plan.FromBlock {
			n.Blocks = append(n.Blocks, p)
		}
	}
	slices.SortFunc(n.Blocks, netip.Prefix.Compare)
	for _, t := range state.Tunnels {
		if t.Kind == plan.IPIP {
			n.Tunnels.IPIP = true
		} else {
			n.Tunnels.VXLANPort = t.Port
			n.VXLAN = append(n.VXLAN, netip.AddrPortFrom(t.Local, t.Port))
		}
	}
	if len(state.Tunnels) > 0 {
		n.Tunnels.Hosts = slices.SortedFunc(maps.Keys(state.Hosts), netip.Addr.Compare)
	}
	// If BGP listens only at some addresses, another speaker may have the others.
	if port := r.bgp.listensAt(state.Speaker); port == state.Speaker.ListenPort && len(state.Speaker.Listen) == 0 {
		n.Tunnels.BGP = policy.BGP{Port: port, Peers: slices.SortedFunc(maps.Keys(state.Neighbours), netip.Addr.Compare)}
	}
	return n
}

// announceTunnels makes a new tunnel wait until the firewall knows of it, but not too long: the firewall must not be able to cut off other
// hosts.
func (r *Router) announceTunnels(ctx context.Context) {
	var before News
	if r.told != nil {
		before = *r.told
	}
	n := r.news()
	if !(n.Tunnels.IPIP && !before.Tunnels.IPIP || n.Tunnels.VXLANPort != 0 && n.Tunnels.VXLANPort != before.Tunnels.VXLANPort) {
		return
	}
	r.told = &n
	late := time.NewTimer(firewallPatience)
	defer late.Stop()
	select {
	case <-r.handover.Tell(n):
	case <-ctx.Done():
	case <-late.C:
		r.log.Warn("starting a tunnel before the firewall knows its hosts: waited too long for the firewall")
	}
}

// announce passes news to the rest of the agent. A tunnel that ends is gone before the firewall forgets it.
func (r *Router) announce() {
	if n := r.news(); r.told == nil || !n.equal(*r.told) {
		r.told = &n
		r.handover.Tell(n)
	}
}

// tellIdentity passes what is known of this host to the identity.
func (r *Router) tellIdentity() {
	const others = 3 // any three; more would show the same
	if r.identity != nil {
		r.identity.Want(board.HostView{Revision: r.etcd.revision, Links: r.links, Devices: r.plan.Devices(), Others: r.plan.Others(others), Conflict: r.plan.Conflict})
	}
}

// speak makes BGP carry out the present plan. A neighbour that keeps a restarting agent's routes must see the same identifier again: see
// docs/decisions.md.
func (r *Router) speak() {
	state := r.plan.State()
	if state.Speaker.AS != 0 {
		r.memory.routerID = state.Speaker.RouterID
	}
	r.bgp.set(bgp.Desired{Speaker: state.Speaker, Neighbours: maps.Clone(state.Neighbours), Advertisements: maps.Clone(state.Advertisements)})
}

// recall makes BGP announce its last state while etcd can't be read or isn't ready: otherwise neighbours would forget the host's routes.
// The kernel's state stays. etcd's content later replaces it, without a new session.
func (r *Router) recall() {
	waits := r.etcd.waits()
	if waits == "" {
		return // the settings are coming, or the owner of the name decides what to announce
	}
	r.memory.recalled = true
	d, err := r.memory.desired, r.memory.err
	if err == nil {
		r.log.Warn("BGP says what it said before the agent was started anew", "waiting", waits, "neighbours", len(d.Neighbours), "advertisements", len(d.Advertisements))
		r.bgp.set(d)
		return
	}
	if former, readErr := r.network.kernel.FormerRoutes(); readErr == nil && len(former) == 0 {
		return // a first start
	}
	r.log.Error("BGP is silent: neighbours forget this host's routes when the restart time is over", "time", max(0, r.settings.Routing.RestartTime), "waiting", waits, "reason", err)
	r.bgp.health.SetDegraded("BGP", fmt.Sprintf("BGP is silent, as what it said last can't be used (%v): neighbours forget this host's routes when BGPRestartTimeSecs are over", err))
}
