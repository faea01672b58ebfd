// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/store"
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

// hostPath is what the loop drives: kernel.HostPath.
type hostPath interface {
	Apply(ctx context.Context, desired []kernel.Endpoint) (kernel.Report, error)
	ApplySome(ctx context.Context, changed, removed []kernel.Endpoint) (kernel.Report, error)
	Subscribe(ctx context.Context) (<-chan kernel.Event, error)
	Close()
}

// system is the host as the loop sees it; a test puts another in its place.
type system struct {
	open            func(prefixes []string) (hostPath, error)
	deleteConntrack func([]netip.Addr) (int, error)
	writeMTU        func(prefixes []string) error
}

// loop is the one goroutine that owns the state: it takes in what happened, all
// that is queued, decides, applies, and answers.
type loop struct {
	log     *slog.Logger
	level   *slog.LevelVar
	environ map[string]string // FELIX_ parameters
	system  system
	metrics *metrics
	health  *health
	report  *reporter

	updates chan store.Update
	waits   chan *wait
	leaves  chan *wait
	flushed chan []netip.Addr
	stopped chan struct{} // closed when the loop has ended

	params   Params
	state    *state
	desired  *desired
	problems *problems
	waiting  map[*wait]struct{}

	// What was logged last of each.
	waitsFor, hostProblem, mtuProblem string

	path      hostPath
	events    <-chan kernel.Event
	unwatch   context.CancelFunc
	whole     bool                    // the whole state is due
	applied   bool                    // it has been applied once
	dirty     map[string]struct{}     // endpoints to follow
	drifted   map[string]struct{}     // interfaces to read
	recount   bool                    // endpoints changed their status
	lost      map[netip.Addr]struct{} // conntrack entries to delete
	flushing  map[netip.Addr]int      // these are being deleted, how many times
	retry     *time.Timer
	pause     time.Duration // before the last retry
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
	l.mtu()
	l.retry = time.NewTimer(time.Hour)
	defer l.retry.Stop()
	interval := l.params.RefreshInterval
	audit := time.NewTicker(interval)
	defer audit.Stop()
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	for {
		l.health.turn()
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
			delete(l.waiting, w)
			continue
		case addrs := <-l.flushed:
			for _, a := range addrs {
				if l.flushing[a]--; l.flushing[a] == 0 {
					delete(l.flushing, a)
				}
			}
		case <-l.retry.C:
			maps.Copy(l.drifted, l.desired.failing)
		case <-audit.C:
			l.whole = true
			l.mtu()
		case <-beat.C:
			continue
		}
		l.drain()
		if err := l.turn(ctx); err != nil {
			return err
		}
		if interval != l.params.RefreshInterval {
			interval = l.params.RefreshInterval
			audit.Reset(interval)
		}
	}
}

// drain takes in all that is queued, so that a burst is applied at once.
func (l *loop) drain() {
	for {
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

func (l *loop) fold(u store.Update) {
	if u.Resync {
		l.metrics.resyncs.Inc()
	}
	e := l.state.fold(u)
	if e.settings {
		l.settle(&e)
	}
	maps.Copy(l.dirty, e.endpoints)
	for path := range e.objects {
		if _, ok := e.endpoints[path]; !ok {
			l.problems.report(path, l.state.objects[path].invalid)
		}
	}
}

// settle takes the settings in etcd into use.
func (l *loop) settle(e *effect) {
	before := l.params
	params, wrong := resolve(l.environ, l.state.settings.local, l.state.settings.global)
	l.params = params
	l.level.Set(params.LogLevel)
	for path, err := range l.state.settingErrors(wrong) {
		delete(e.objects, path)
		l.problems.report(path, err)
	}
	if !slices.Equal(before.InterfacePrefixes, params.InterfacePrefixes) {
		l.log.Info("workload interfaces have other prefixes now", "prefixes", params.InterfacePrefixes)
		e.merge(l.state.setPrefixes(params.InterfacePrefixes))
		l.unwatch()
		l.path.Close()
		l.path = nil // turn opens it anew
		l.whole = true
	}
}

// note takes in an event of the kernel.
func (l *loop) note(e kernel.Event, ok bool) {
	if !ok {
		l.events = nil // the timer remains
		return
	}
	l.whole = l.whole || e.All
	for _, name := range e.Interfaces {
		if l.desired.interfaces[name] != nil {
			l.drifted[name] = struct{}{}
		}
	}
	if e.All {
		l.mtu()
	}
}

// turn acts on what has been taken in.
func (l *loop) turn(ctx context.Context) error {
	if l.path == nil {
		if err := l.openPath(ctx); err != nil {
			return err
		}
	}
	reason := l.state.waitsFor()
	l.sayWaiting(reason)
	now := time.Now()
	var w work
	touched := map[string]struct{}{}
	if reason == "" {
		touched, l.dirty = l.dirty, touched
		w = l.desired.follow(l.state, touched, now)
		l.lose(w.lost)
	}
	// While there is something to wait for, what was desired before stays, and
	// is kept repaired: an etcd that was emptied cuts off nobody.
	if reason == "" || l.applied {
		if err := l.apply(ctx, w, now); err != nil && ctx.Err() == nil {
			l.log.Error("the kernel's state could not be read, trying again", "err", err)
			l.whole = true
			l.again()
		}
	}
	l.tell(touched)
	l.flush()
	l.answer()
	return nil
}

// apply brings the kernel in line: all of it where that is due, else what changed
// and what drifted.
func (l *loop) apply(ctx context.Context, w work, now time.Time) error {
	var report kernel.Report
	var err error
	kind := "some"
	switch {
	case l.whole || !l.applied:
		kind = "whole"
		report, err = l.path.Apply(ctx, l.desired.all())
	default:
		l.addDrift(&w, now)
		if w.empty() {
			return nil
		}
		report, err = l.path.ApplySome(ctx, w.changed, w.removed)
	}
	l.metrics.applySeconds.WithLabelValues(kind).Observe(time.Since(now).Seconds())
	if err != nil {
		return err
	}
	l.metrics.writes.Add(float64(report.Writes))
	l.metrics.repairs.Add(float64(report.Repairs))
	l.lose(report.Lost)
	if kind == "whole" {
		l.whole = false
		clear(l.drifted)
		if !l.applied {
			l.applied = true
			l.report.firstUpdate()
			l.log.Info("the host's workload interfaces are programmed", "endpoints", len(l.desired.interfaces), "changes", report.Writes, "took", time.Since(now))
		}
	}
	l.sayProblems(report.Problems)
	for _, t := range l.desired.read(report.Endpoints) {
		l.tellTarget(t)
	}
	if len(l.desired.failing) > 0 {
		l.again()
	} else {
		l.pause = 0
	}
	return nil
}

// again has the loop try again after a while, longer each time.
func (l *loop) again() {
	l.pause = min(max(2*l.pause, retryPause), l.params.RefreshInterval)
	l.retry.Reset(l.pause)
}

// addDrift adds the interfaces that somebody else changed, unless some were
// repaired just now: then later.
func (l *loop) addDrift(w *work, now time.Time) {
	if len(l.drifted) == 0 {
		return
	}
	if since := now.Sub(l.lastDrift); since < driftPause {
		l.retry.Reset(driftPause - since)
		return
	}
	l.lastDrift = now
	for name := range l.drifted {
		t := l.desired.interfaces[name]
		if t != nil && !slices.ContainsFunc(w.changed, func(e kernel.Endpoint) bool { return e.Interface == name }) {
			w.changed = append(w.changed, t.want)
		}
	}
	clear(l.drifted)
}

// openPath opens the host's data path and subscribes to what others change.
func (l *loop) openPath(ctx context.Context) error {
	path, err := l.system.open(l.params.InterfacePrefixes)
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
	l.path, l.events, l.unwatch, l.whole = path, events, unwatch, true
	return nil
}
