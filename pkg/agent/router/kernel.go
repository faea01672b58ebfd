// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/plan"
)

// programming holds routes and tunnels: fabric.Fabric.
type programming interface {
	Apply(context.Context, plan.State) (fabric.Report, error)
	ApplySome(context.Context, plan.Changes) (fabric.Report, error)
	Subscribe(context.Context) (<-chan struct{}, error)
	Close()
}

// kernel brings the kernel's routes and tunnels in line with the plan.
type kernel struct {
	open    func(prefixes []string) (programming, error)
	reports *reports
	health  *health.Monitor
	metrics Metrics

	fabric  programming // nil = not open
	events  <-chan struct{}
	unwatch context.CancelFunc
	whole   bool             // compare everything, not only what changed
	applied bool             // everything was applied once
	lacks   map[string]error // what the kernel doesn't hold as it should, by subject
}

// ready opens the kernel's side if it isn't open, and reports whether it is.
func (k *kernel) ready(ctx context.Context, prefixes []string) bool {
	if k.fabric != nil {
		return true
	}
	err := k.subscribe(ctx, prefixes)
	if err != nil && ctx.Err() != nil {
		return false // the agent stops
	}
	return k.reports.ok("routes to other hosts can't be programmed, trying again", err)
}

func (k *kernel) subscribe(ctx context.Context, prefixes []string) error {
	f, err := k.open(prefixes)
	if err != nil {
		return fmt.Errorf("open routes and tunnels: %w", err)
	}
	watch, unwatch := context.WithCancel(ctx)
	events, err := f.Subscribe(watch)
	if err != nil {
		unwatch()
		f.Close()
		return errors.Join(err, ctx.Err())
	}
	k.fabric, k.events, k.unwatch, k.whole = f, events, unwatch, true
	return nil
}

func (k *kernel) close() {
	if k.fabric != nil {
		k.unwatch()
		k.fabric.Close()
		k.fabric, k.events = nil, nil
	}
}

// apply brings the kernel in line: all of it if that is due, else what changed. It reports whether anything was due, and whether the kernel
// holds all that it should.
func (k *kernel) apply(ctx context.Context, state *plan.State, c plan.Changes) (tried, ok bool) {
	start := time.Now()
	var report fabric.Report
	var err error
	scope := "some"
	switch {
	case k.whole:
		scope = "whole"
		report, err = k.fabric.Apply(ctx, *state)
	case len(c.Routes) > 0 || len(c.Remotes) > 0 || c.Devices != nil:
		report, err = k.fabric.ApplySome(ctx, c)
	default:
		return false, true
	}
	k.metrics.applySeconds.WithLabelValues(scope).Observe(time.Since(start).Seconds())
	if err != nil && ctx.Err() != nil {
		return false, true // the agent stops
	}
	k.whole = err != nil
	if !k.reports.ok("the kernel's routes to other hosts could not be read, trying again", err) {
		k.metrics.failures.Inc()
		k.health.Set("routes", "routes to other hosts: "+err.Error())
		return true, false
	}
	k.metrics.writes.Add(float64(report.Writes))
	k.metrics.repairs.Add(float64(report.Repairs))
	if !k.applied {
		k.applied = true
		k.reports.log.Info("routes to other hosts are programmed", "routes", len(state.Routes), "tunnels", len(state.Tunnels), "changes", report.Writes, "took", time.Since(start))
	}
	k.health.Set("routes", "")
	k.note(scope == "whole" || c.Devices != nil, c, report.Problems)
	return true, len(k.lacks) == 0
}

// problemKernel is the kind of problem of what the kernel doesn't hold; other kinds are plan's.
const problemKernel = "not-programmed"

// note records what the kernel doesn't hold as it should.
func (k *kernel) note(all bool, c plan.Changes, found []fabric.Problem) {
	lacks := map[string]error{}
	if !all { // the rest is as before
		lacks = maps.Clone(k.lacks)
		for p := range c.Routes {
			delete(lacks, p.String())
		}
		for id := range c.Remotes {
			delete(lacks, id.Outer.String())
		}
	}
	now := map[string]error{}
	for _, p := range found {
		now[p.Subject] = errors.Join(now[p.Subject], p.Err)
	}
	maps.Copy(lacks, now)
	for _, subject := range slices.Sorted(maps.Keys(k.lacks)) {
		if lacks[subject] == nil {
			k.reports.say(problemKernel, subject, nil)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(now)) {
		k.reports.say(problemKernel, subject, now[subject])
	}
	k.reports.done()
	k.lacks = lacks
	k.metrics.problems.WithLabelValues(problemKernel).Set(float64(len(lacks)))
}
