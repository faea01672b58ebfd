// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
)

// enforce brings the kernel in line, the firewall first. Only workloads that are
// new to it, or are connected as they were, are so at the same time: what it
// doesn't know passes nothing.
func (l *loop) enforce(ctx context.Context, w work, now time.Time) {
	connect := l.connect(ctx, &w, now)
	beside := w.fresh && l.wall.applied && l.wall.err == nil && !l.suspicious && connect != nil
	if beside {
		done := make(chan connected, 1)
		go func(connect func() connected) { done <- connect() }(connect)
		connect = func() connected { return <-done }
	}
	if l.fence(ctx, now) {
		l.tellStands()
	} else if !beside {
		return
	}
	if connect != nil {
		c := connect()
		if c.err == nil && c.whole {
			l.whole = false
			clear(l.drifted)
			l.unrouted = false
		}
		l.take(ctx, c)
	}
}

// connected is what came of bringing the host's data path in line.
type connected struct {
	whole  bool
	report hostpath.Report
	err    error
	took   time.Duration
}

// connect brings the host's data path in line: all of it where that is due, else
// what changed and what drifted; nil where there is nothing to do. The function
// uses nothing else of the loop's.
func (l *loop) connect(ctx context.Context, w *work, now time.Time) func() connected {
	path := l.path
	if l.whole || !l.applied {
		w.fresh = false
		all := l.desired.all()
		return func() connected {
			began := time.Now()
			report, err := path.Apply(ctx, all)
			return connected{true, report, err, time.Since(began)}
		}
	}
	l.addDrift(w, now)
	if w.empty() {
		return nil
	}
	changed, removed := w.changed, w.removed
	return func() connected {
		began := time.Now()
		report, err := path.ApplySome(ctx, changed, removed)
		return connected{false, report, err, time.Since(began)}
	}
}

// take takes in what came of it. What can't be read is tried again.
func (l *loop) take(ctx context.Context, c connected) {
	kind, report := "some", c.report
	if c.whole {
		kind = "whole"
	}
	l.metrics.applySeconds.WithLabelValues(kind).Observe(c.took.Seconds())
	if c.err != nil {
		if ctx.Err() == nil {
			level := slog.LevelError
			if l.overtaken.state.Hide(c.err, time.Now()) {
				level = slog.LevelDebug
			}
			l.log.Log(ctx, level, "the kernel's state could not be read, trying again", "err", c.err)
			l.whole = true
			l.again()
		}
		return
	}
	l.overtaken.state.Hide(nil, time.Now())
	l.metrics.writes.Add(float64(report.Writes))
	l.metrics.repairs.Add(float64(report.Repairs))
	l.lose(report.Lost)
	if !l.applied {
		l.applied = true
		l.report.FirstUpdate()
		l.log.Info("the host's workload interfaces are programmed", "endpoints", len(l.desired.interfaces), "changes", report.Writes, "took", c.took)
	}
	l.sayProblems(report.Problems)
	if c.whole {
		l.strays.found, l.strays.read = report.Strays, time.Now()
		l.sayStrays()
	}
	for _, t := range l.desired.read(report.Endpoints) {
		l.tellTarget(t)
	}
	if len(l.desired.failing) > 0 {
		l.again()
	} else {
		l.pause = 0
	}
}

// again has the loop try again after a while, longer each time.
func (l *loop) again() {
	l.pause = min(max(2*l.pause, retryPause), l.params.RefreshInterval)
	l.retry.Reset(l.pause)
}

// addDrift adds the interfaces that somebody else changed, and the host's forwarding,
// unless some were repaired just now: then later.
func (l *loop) addDrift(w *work, now time.Time) {
	if len(l.drifted) == 0 && !l.unrouted {
		return
	}
	if since := now.Sub(l.lastDrift); since < driftPause {
		l.retry.Reset(driftPause - since)
		return
	}
	l.lastDrift, w.fresh = now, false
	w.host, l.unrouted = l.unrouted, false
	for name := range l.drifted {
		t := l.desired.interfaces[name]
		if t != nil && !slices.ContainsFunc(w.changed, func(e hostpath.Endpoint) bool { return e.Interface == name }) {
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

// settle takes the settings in etcd into use.
func (l *loop) settle(ctx context.Context) error {
	l.unsettled = false
	before := l.params.InterfacePrefixes
	l.adopt()
	params := l.params
	l.configureFirewall()
	if slices.Equal(before, params.InterfacePrefixes) {
		return nil
	}
	l.readInterfaces()
	l.log.Info("workload interfaces have other prefixes now", "prefixes", params.InterfacePrefixes)
	e := l.state.setPrefixes(params.InterfacePrefixes)
	maps.Copy(l.dirty, e.endpoints)
	if l.applied {
		// What the new prefixes don't cover is out of reach afterwards.
		w := l.desired.follow(l.state, e.endpoints, time.Now())
		l.lose(w.lost)
		if _, err := l.path.ApplySome(ctx, nil, w.removed); err != nil && ctx.Err() == nil {
			l.log.Error("interfaces of the former prefixes were not cleaned", "err", err)
		}
	}
	l.unwatch()
	l.path.Close()
	if err := l.openPath(ctx); err != nil {
		return err
	}
	l.indexAll()
	l.lookAgain.Reset(0) // what became of the host's own links since the prefixes were judged nobody tells
	return nil
}
