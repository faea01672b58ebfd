// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/agent/inbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/plan"
)

// program brings the kernel in line: all of it where that is due, else what changed.
func (r *Router) program(ctx context.Context, c plan.Changes) {
	now := time.Now()
	some := len(c.Routes) > 0 || len(c.Remotes) > 0 || c.Devices != nil
	var report fabric.Report
	var err error
	scope := "some"
	switch {
	case r.whole:
		scope = "whole"
		state := r.state
		state.Tunnels = r.tunnels(now)
		report, err = r.fabric.Apply(ctx, state)
	case some:
		if c.Devices != nil {
			c.Devices = &plan.Devices{Tunnels: r.tunnels(now), Releases: c.Devices.Releases}
		}
		report, err = r.fabric.ApplySome(ctx, c)
	default:
		return
	}
	r.metrics.applySeconds.WithLabelValues(scope).Observe(time.Since(now).Seconds())
	if err != nil && ctx.Err() != nil {
		return // the agent stops
	}
	r.whole = err != nil
	if !r.well(applyTrouble, "the kernel's routes to other hosts could not be read, trying again", err) {
		r.metrics.failures.Inc()
		r.health.Set("routes", "routes to other hosts: "+err.Error())
		r.again()
		return
	}
	r.metrics.writes.Add(float64(report.Writes))
	r.metrics.repairs.Add(float64(report.Repairs))
	if !r.applied {
		r.applied = true
		r.log.Info("the way to other hosts is programmed", "routes", len(r.state.Routes), "tunnels", len(r.state.Tunnels), "changes", report.Writes, "took", time.Since(now))
	}
	r.health.Set("routes", "")
	r.note(scope == "whole" || c.Devices != nil, c, report.Problems)
}

// note keeps what the kernel doesn't hold as desired; it is tried again.
func (r *Router) note(all bool, c plan.Changes, found []fabric.Problem) {
	now := make(map[string]error, len(found))
	for _, p := range found {
		now[p.Subject] = errors.Join(now[p.Subject], p.Err)
	}
	looked := map[string]struct{}{}
	if all {
		for subject := range r.lacks {
			looked[subject] = struct{}{}
		}
	}
	for p := range c.Routes {
		looked[p.String()] = struct{}{}
	}
	for id := range c.Remotes {
		looked[id.Outer.String()] = struct{}{}
	}
	said := newSayer(r)
	for subject := range looked {
		if _, still := now[subject]; !still && r.lacks[subject] != nil {
			delete(r.lacks, subject)
			said.say(problemKernel, subject, nil)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(now)) {
		r.lacks[subject] = now[subject]
		said.say(problemKernel, subject, now[subject])
	}
	said.done()
	r.metrics.problems.WithLabelValues(problemKernel).Set(float64(len(r.lacks)))
	if len(r.lacks) > 0 {
		r.again()
	} else {
		r.pause = 0
	}
}

// leastPause is the first pause after which what failed is tried again.
const leastPause = time.Second

// again has the router try again after a while, longer each time.
func (r *Router) again() {
	r.pause = min(max(2*r.pause, leastPause), r.params.RefreshInterval)
	r.retry.Reset(r.pause)
}

// problemKernel is the kind of what the kernel doesn't hold; the others are plan's.
const problemKernel = "not-programmed"

// settling is how long what BGP says may contradict what etcd says without a word: of an address that is borrowed, or
// given back, the two tell at different moments.
const settling = 2 * time.Second

// sayProblems says what the engine finds wrong, and what is in order again. What
// the loop reports on it leaves out.
func (r *Router) sayProblems(c plan.Changes, now time.Time) {
	if len(c.Problems) == 0 {
		return
	}
	said := newSayer(r)
	for _, id := range slices.SortedFunc(maps.Keys(c.Problems), byName) {
		if id.Kind == plan.BadValue && !inbox.IsRoutesOnly(id.Subject) {
			continue
		}
		var err error
		if p := c.Problems[id]; p != nil {
			if id.Kind == plan.RefusedRoute {
				r.saySoon(id, now)
				continue
			}
			err = errors.New(p.Reason)
		}
		delete(r.unsaid, id)
		said.say(string(id.Kind), id.Subject, err)
	}
	said.done()
}

// saySoon has a problem said if it lasts.
func (r *Router) saySoon(id plan.ProblemID, now time.Time) {
	if len(r.unsaid) == 0 {
		r.saying.Reset(settling)
	}
	if _, waits := r.unsaid[id]; !waits {
		r.unsaid[id] = now
	}
}

// sayUnsaid says the problems that have lasted.
func (r *Router) sayUnsaid(now time.Time) {
	said := newSayer(r)
	next := settling
	for _, id := range slices.SortedFunc(maps.Keys(r.unsaid), byName) {
		if rest := settling - now.Sub(r.unsaid[id]); rest > 0 {
			next = min(next, rest)
			continue
		}
		delete(r.unsaid, id)
		said.say(string(id.Kind), id.Subject, errors.New(r.state.Problems[id].Reason))
	}
	said.done()
	if len(r.unsaid) > 0 {
		r.saying.Reset(next)
	}
}

func byName(a, b plan.ProblemID) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject))
}

// sayer logs problems, each once, and not too many at a time.
type sayer struct {
	r       *Router
	lines   int
	unsaid  int
	example string
}

func newSayer(r *Router) *sayer { return &sayer{r: r} }

// say says how it stands with something; nil is well.
func (s *sayer) say(kind, subject string, err error) {
	before, after := s.r.problems.Note(kind, subject, err)
	if before == after {
		return
	}
	if s.lines++; s.lines > problems.MostSaid {
		s.unsaid, s.example = s.unsaid+1, fmt.Sprintf("%s %s", kind, subject)
		return
	}
	if after == "" {
		s.r.log.Info("the way to other hosts: in order again", "kind", kind, "subject", subject)
	} else {
		s.r.log.Warn("the way to other hosts is not in order", "kind", kind, "subject", subject, "reason", after)
	}
}

func (s *sayer) done() {
	if s.unsaid > 0 {
		s.r.log.Warn("the way to other hosts: more changed than is logged, see /debug/invalid", "more", s.unsaid, "last", s.example)
	}
}
