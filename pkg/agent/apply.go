// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/kernel"
)

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
	return l.openPath(ctx)
}
