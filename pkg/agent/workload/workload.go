// SPDX-License-Identifier: Apache-2.0

// Package workload keeps the host's side of its workload endpoints in the kernel:
// routes, neighbours and sysctls of their interfaces.
//
// A Reconciler takes in what etcd holds, decides which endpoint gets what it claims, and brings the kernel in line. Events of the kernel
// only say that something may have changed; at intervals everything is read back and compared.
package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
)

const (
	// driftPause is the least time between two repairs that events cause. It slows a fight with another program.
	driftPause = 20 * time.Millisecond
	// retryPause is the first pause before what the kernel refused is tried again.
	retryPause    = time.Second
	maxRetryPause = 10 * time.Second
)

// Path is the kernel's side: hostpath.Path.
type Path interface {
	Apply(ctx context.Context, desired []hostpath.Endpoint) (hostpath.Report, error)
	ApplySome(ctx context.Context, changed, removed []hostpath.Endpoint) (hostpath.Report, error)
	Subscribe(ctx context.Context) (<-chan hostpath.Event, error)
	Indexes(names ...string) map[string]int
	ShrinkMTU(ctx context.Context, mtu int) (changed int, err error)
	Close()
}

// Config configures a Reconciler.
type Config struct {
	Host     string // this host's name in etcd
	Prefixes []string
	Open     func(prefixes []string) (Path, error)
	Logger   *slog.Logger
	Problems *problems.Ledger
	Metrics  Metrics
	Retry    time.Duration // pause before failures are retried; 0 = growing pauses
}

// Reconciler keeps the interfaces of workloads. It is not safe for concurrent use.
type Reconciler struct {
	cfg     Config
	claims  *claims
	desired *desired
	stale   stale

	own []hostpath.Endpoint // the agent's own workloads

	path    Path
	events  <-chan hostpath.Event
	unwatch context.CancelFunc

	whole     bool                // apply the whole state next
	applied   bool                // it was applied once
	drifted   map[string]struct{} // interfaces to read
	unrouted  bool                // something disabled the host's forwarding
	lastDrift time.Time
	due       time.Time
	backoff   retry.Backoff
	overtaken problems.Passing // readings that failed because of changes meanwhile
}

// New returns a Reconciler that wants nothing yet.
func New(cfg Config) *Reconciler {
	return &Reconciler{cfg: cfg, claims: newClaims(cfg.Host, cfg.Prefixes), desired: newDesired(), drifted: map[string]struct{}{}, whole: true,
		backoff: retry.Backoff{First: retryPause, Longest: maxRetryPause, Exact: true}}
}

// Open opens the host's data path and subscribes to others' changes.
func (r *Reconciler) Open(ctx context.Context) error {
	path, err := r.cfg.Open(r.claims.prefixes)
	if err != nil {
		return fmt.Errorf("open the host's data path: %w", err)
	}
	watch, unwatch := context.WithCancel(ctx)
	events, err := path.Subscribe(watch)
	if err != nil {
		unwatch()
		path.Close()
		return errors.Join(err, ctx.Err())
	}
	r.path, r.events, r.unwatch, r.whole = path, events, unwatch, true
	return nil
}

// Close closes the data path; what is programmed stays.
func (r *Reconciler) Close() {
	r.unwatch()
	r.path.Close()
}

// Path returns the host's data path; SetPrefixes replaces it.
func (r *Reconciler) Path() Path { return r.path }

// Events returns the channel of events for Note; SetPrefixes replaces it.
func (r *Reconciler) Events() <-chan hostpath.Event { return r.events }

// Due is when Retry must be called; zero = not.
func (r *Reconciler) Due() time.Time { return r.due }

// Retry makes the next Begin try again what failed or drifted.
func (r *Reconciler) Retry() {
	r.due = time.Time{}
	maps.Copy(r.drifted, r.desired.failing)
}

// Update takes in what changed in etcd.
func (r *Reconciler) Update(entries ...model.Entry) {
	for _, e := range entries {
		r.claims.update(e)
	}
}

// Reserve sets the addresses that no endpoint may have, with their owners.
func (r *Reconciler) Reserve(addrs map[netip.Addr]string) { r.claims.setReserved(addrs) }

// SetOwn sets the agent's own workloads, which aren't in etcd. Their status is not reported.
func (r *Reconciler) SetOwn(own []hostpath.Endpoint) { r.own, r.whole = own, true }

// Families reports which families of addresses active workloads have.
func (r *Reconciler) Families() (v4, v6 bool) {
	for _, t := range r.desired.interfaces {
		for _, a := range t.Want.Addrs {
			v4, v6 = v4 || t.Want.Active && a.Is4(), v6 || t.Want.Active && a.Is6()
		}
		if v4 && v6 {
			break
		}
	}
	return v4, v6
}

// SetPrefixes changes which interfaces are workloads'. It cleans those that no longer are, and returns the addresses that lead nowhere now.
func (r *Reconciler) SetPrefixes(ctx context.Context, prefixes []string) (lost []netip.Addr, err error) {
	r.claims.setPrefixes(prefixes)
	if r.path == nil {
		return nil, nil
	}
	if r.applied {
		// Interfaces that the new prefixes don't cover are out of reach afterwards.
		w := r.desired.reconcile(r.claims, r.claims.dirty, time.Now())
		lost = w.lost
		if _, err := r.path.ApplySome(ctx, nil, w.removed); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Error("interfaces of the former prefixes were not cleaned", "err", err)
		}
	}
	r.Close()
	return lost, r.Open(ctx)
}

// SetLoopback sets whether virtual machines find metadata at the host's loopback, which workloads reach for nothing else.
func (r *Reconciler) SetLoopback(on bool) {
	if on != r.claims.loopback {
		r.claims.loopback = on
		r.claims.setPrefixes(r.claims.prefixes)
	}
}

// Note takes in an event of the kernel; ok is false if there are no more.
func (r *Reconciler) Note(e hostpath.Event, ok bool) {
	r.unrouted = r.unrouted || e.Forwarding
	if !ok {
		r.events = nil // the audit remains
		return
	}
	r.whole = r.whole || e.All
	for _, name := range e.Interfaces {
		if r.desired.interfaces[name] != nil {
			r.drifted[name] = struct{}{}
		}
	}
}

// Audit makes the next Begin read everything back.
func (r *Reconciler) Audit() { r.whole = true }

// Indexes returns the kernel's indexes of interfaces.
func (r *Reconciler) Indexes(names []string) map[string]int {
	if len(names) == 0 {
		return nil
	}
	return r.path.Indexes(names...)
}

// AllIndexes returns the indexes of all endpoints' interfaces, and of the agent's own workloads'.
func (r *Reconciler) AllIndexes() map[string]int {
	names := slices.Collect(maps.Keys(r.desired.interfaces))
	for _, e := range r.own {
		names = append(names, e.Interface)
	}
	return r.Indexes(names)
}

// A Change is what a change in etcd means for the kernel.
type Change struct {
	// Paths are the endpoints that were decided on again.
	Paths map[string]struct{}
	// Lost are addresses that no longer lead where they led.
	Lost []netip.Addr
	work work
}

// Decide acts on what Update, Reserve and SetPrefixes brought.
func (r *Reconciler) Decide() Change {
	paths := r.claims.dirty
	r.claims.dirty = map[string]struct{}{}
	w := r.desired.reconcile(r.claims, paths, time.Now())
	return Change{Paths: paths, Lost: w.lost, work: w}
}

// task is work on the kernel, which may run concurrently with other work.
type task struct {
	// Fresh: the firewall alone decides whether what changes is connected: interfaces that no endpoint had before are closed, and others
	// keep their access.
	Fresh bool
	whole bool
	do    func(context.Context) (hostpath.Report, error)
}

// Result is the result of a task.
type Result struct {
	whole  bool
	report hostpath.Report
	err    error
	took   time.Duration
}

// Begin returns what to do to the kernel: everything if that is due, else what changed and what drifted; nil if nothing. Its Do is the only
// function that may run concurrently with the Reconciler's methods.
func (r *Reconciler) Begin(c Change) *task {
	path, w := r.path, c.work
	if r.whole || !r.applied {
		all := append(r.desired.all(), r.own...)
		return &task{whole: true, do: func(ctx context.Context) (hostpath.Report, error) { return path.Apply(ctx, all) }}
	}
	r.addDrift(&w, time.Now())
	if w.empty() {
		return nil
	}
	return &task{Fresh: w.fresh, do: func(ctx context.Context) (hostpath.Report, error) {
		return path.ApplySome(ctx, w.changed, w.removed)
	}}
}

// Do does the work.
func (t *task) Do(ctx context.Context) Result {
	began := time.Now()
	report, err := t.do(ctx)
	return Result{t.whole, report, err, time.Since(began)}
}

// addDrift adds the interfaces that others changed, and the host's forwarding, unless some were repaired just now: then it postpones them.
func (r *Reconciler) addDrift(w *work, now time.Time) {
	if len(r.drifted) == 0 && !r.unrouted {
		return
	}
	if since := now.Sub(r.lastDrift); since < driftPause {
		r.due = now.Add(driftPause - since)
		return
	}
	r.lastDrift, w.fresh = now, false
	w.host, r.unrouted = r.unrouted, false
	for name := range r.drifted {
		t := r.desired.interfaces[name]
		if t != nil && !slices.ContainsFunc(w.changed, func(e hostpath.Endpoint) bool { return e.Interface == name }) {
			w.changed = append(w.changed, t.Want)
		}
	}
	clear(r.drifted)
}

// End takes in the result of a task, and returns the endpoints whose state it changed, and the addresses that lead nowhere now. Failed
// readings are retried.
func (r *Reconciler) End(ctx context.Context, done Result) (changed []*Target, lost []netip.Addr) {
	r.cfg.Metrics.observe(done)
	if done.err != nil {
		if ctx.Err() == nil {
			level := slog.LevelError
			if r.overtaken.Hide(done.err, time.Now()) {
				level = slog.LevelDebug
			}
			r.cfg.Logger.Log(ctx, level, "the kernel's state could not be read, trying again", "err", done.err)
			r.whole = true
			r.again()
		}
		return nil, nil
	}
	r.overtaken.Hide(nil, time.Now())
	if done.whole {
		r.whole, r.unrouted = false, false
		clear(r.drifted)
		r.stale.found, r.stale.read = done.report.Stale, time.Now()
	}
	if !r.applied {
		r.applied = true
		r.cfg.Logger.Info("the host's workload interfaces are programmed", "endpoints", len(r.desired.interfaces), "changes", done.report.Writes, "took", done.took)
	}
	r.cfg.Problems.Tell(problems.Host, "the path to workloads", errors.Join(done.report.Problems...))
	changed = r.desired.read(done.report.Endpoints)
	for _, t := range changed {
		if t.Applied && !t.since.IsZero() {
			r.cfg.Metrics.Programmed.Observe(time.Since(t.since).Seconds())
			t.since = time.Time{}
		}
	}
	if len(r.desired.failing) > 0 {
		r.again()
	} else {
		r.backoff.Reset()
	}
	return changed, done.report.Lost
}

// again schedules another Begin after a while.
func (r *Reconciler) again() {
	r.due = time.Now().Add(cmp.Or(r.cfg.Retry, r.backoff.Next()))
}

// Applied reports whether the whole state has been applied once.
func (r *Reconciler) Applied() bool { return r.applied }

// Stored returns the revision of an endpoint in etcd; false = there is none.
func (r *Reconciler) Stored(path string) (revision int64, ok bool) {
	ep := r.claims.endpoints[path]
	if ep == nil {
		return 0, false
	}
	return ep.revision, true
}

// Target returns the state of an endpoint, nil = nothing was decided on it.
func (r *Reconciler) Target(path string) *Target { return r.desired.targets[path] }

// Targets returns all targets, by path.
func (r *Reconciler) Targets() map[string]*Target { return r.desired.targets }

// Misfit returns an error if the host has endpoints but the prefixes cover none of their interfaces: then the setting is wrong.
func (r *Reconciler) Misfit() error { return r.claims.misfit() }

// Outside returns the interface of an endpoint if no prefix covers it; "" if one does.
func (r *Reconciler) Outside(path string) string { return r.claims.outside(path) }

var _ Path = (*hostpath.Path)(nil)
