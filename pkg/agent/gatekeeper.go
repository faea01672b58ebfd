// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/gate"
)

// lateAfter is how long who waits at the gate for a revision of etcd does so before the
// watch is told that there is one. It has been written then, and its event takes milliseconds.
const lateAfter = time.Second

// wait is one question at the gate.
type wait struct {
	request gate.Request
	reply   chan error // takes one without blocking
}

// gatekeeper answers the gate's questions by asking the loop.
type gatekeeper struct {
	loop *loop
}

// Wait is of gate.Waiter.
func (g gatekeeper) Wait(ctx context.Context, r gate.Request) error {
	g.loop.metrics.waiting.Inc()
	defer g.loop.metrics.waiting.Dec()
	if err := g.loop.report.Named(ctx); err != nil {
		g.loop.metrics.waits.WithLabelValues(waitResult(err)).Inc()
		return err
	}
	w := &wait{request: r, reply: make(chan error, 1)}
	select {
	case g.loop.waits <- w:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	late := time.NewTicker(lateAfter)
	defer late.Stop()
	for ctx.Err() == nil {
		select {
		case err := <-w.reply:
			g.loop.metrics.waits.WithLabelValues(waitResult(err)).Inc()
			return err
		case <-late.C:
			g.loop.expect(r.Revision)
			select {
			case g.loop.late <- struct{}{}:
			default: // it turns
			}
		case <-ctx.Done():
		}
	}
	g.loop.metrics.waits.WithLabelValues("left").Inc()
	select {
	case g.loop.leaves <- w:
		return <-w.reply
	case <-g.loop.stopped:
	}
	return context.Cause(ctx)
}

// Ready is of gate.Waiter.
func (g gatekeeper) Ready(host string) error {
	if host != "" {
		if err := g.loop.state.checkHost(host); err != nil {
			return err
		}
	}
	reason, doubt := g.loop.health.Unready(), g.loop.report.Naming.Waits()
	switch {
	case doubt != "": // health hears of it when the loop turns
		return &gate.RejectedError{Reason: cmp.Or(reason, doubt), Retry: true, Name: gate.NameInDoubt, Undecided: status.Undecided(doubt)}
	case reason != "":
		return &gate.RejectedError{Reason: reason, Retry: true, Name: gate.NameOwn}
	}
	return nil
}

// checkHost refuses questions about another host. It may be called from outside
// of the loop: a state's host never changes.
func (s *state) checkHost(host string) error {
	if host == s.host {
		return nil
	}
	return &gate.RejectedError{Reason: fmt.Sprintf("this is the agent of host %s, not of %s: use one node name in the network configuration and for the agent", s.host, host)}
}

func waitResult(err error) string {
	var rejected *gate.RejectedError
	switch {
	case err == nil:
		return "programmed"
	case errors.As(err, &rejected):
		return "rejected"
	}
	return "left"
}

// answer answers those at the gate who can be answered now.
func (l *loop) answer() {
	for w := range l.waiting {
		done, err := l.desired.answer(l.state, w.request)
		if !done || err == nil && (l.waitsForTracker(w.request) || l.wall.stands(w.request.Endpoint.Path()) != nil) {
			continue
		}
		delete(l.waiting, w)
		w.reply <- err
	}
}

// leave lets somebody go who waits no longer, with the reason why it was in vain.
func (l *loop) leave(w *wait) {
	if _, ok := l.waiting[w]; !ok {
		return // answered meanwhile
	}
	delete(l.waiting, w)
	w.reply <- &gate.RejectedError{Reason: l.lacks(w.request), Retry: true}
}

// lacks says why the endpoint of a request is not programmed yet.
func (l *loop) lacks(r gate.Request) string {
	path := r.Endpoint.Path()
	t := l.desired.targets[path]
	switch reason := l.health.Unready(); {
	case reason != "":
		return reason
	case l.state.revision < r.Revision:
		reason := fmt.Sprintf("etcd's revision %d has not come yet, the latest is %d", r.Revision, l.state.revision)
		if deaf := l.health.Disconnected(0); deaf != "" {
			reason += ": " + deaf
		}
		return reason
	case l.state.endpoints[path] == nil && l.state.deaf:
		return cmp.Or(l.health.Disconnected(0), "etcd was away until now") + ": endpoint " + path + " isn't known"
	case t != nil && t.problem != nil:
		return "endpoint " + path + " is not programmed: " + t.problem.Error()
	case l.waitsForTracker(r):
		return "connections of those who had the addresses of endpoint " + path + " before are still being deleted"
	}
	if err := l.wall.stands(path); err != nil {
		return "the firewall of endpoint " + path + " is not programmed: " + err.Error()
	}
	return "endpoint " + path + " is not programmed yet"
}

// waitsForTracker says that connections of the endpoint's addresses with a former
// holder are still to be deleted.
func (l *loop) waitsForTracker(r gate.Request) bool {
	t := l.desired.targets[r.Endpoint.Path()]
	return t != nil && l.connections.Deleting(t.want.Addrs)
}
