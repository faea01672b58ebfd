// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// lateAfter is how long a caller of the gate waits before Wait checks whether pods are admitted at all and whether etcd is back, and tells
// the watch which revision it expects.
const lateAfter = time.Second

// wait is one request to the gate.
type wait struct {
	request gate.Request
	reply   chan error // buffered: takes one answer without blocking
}

// waiters are the callers of the gate that wait for an answer.
type waiters struct {
	waiting map[*wait]struct{}
}

// gatekeeper answers the gate's questions by asking the loop.
type gatekeeper struct {
	loop *loop
	pods podSource // nil without Kubernetes
}

// podSource returns what the Kubernetes API says about pods; see gate.Waiter.
type podSource interface {
	Pod(ctx context.Context, r gate.PodRequest) (gate.Pod, error)
}

// Wait implements gate.Waiter.
func (g gatekeeper) Wait(ctx context.Context, r gate.Request) error {
	g.loop.metrics.waiting.Inc()
	defer g.loop.metrics.waiting.Dec()
	if err := g.loop.report.Named(ctx); err != nil {
		g.loop.metrics.waits.WithLabelValues(waitResult(err)).Inc()
		return err
	}
	if err := g.held(false); err != nil {
		g.loop.metrics.waits.WithLabelValues(waitResult(err)).Inc()
		return err
	}
	w := &wait{request: r, reply: make(chan error, 1)}
	select {
	case g.loop.asks <- func() (turn bool) {
		g.loop.gate.waiting[w] = struct{}{}
		return true
	}:
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
			if err := g.held(false); err != nil {
				return g.leave(ctx, w, err)
			}
			g.loop.source.Expect(r.Revision)
			select {
			case g.loop.asks <- g.loop.isBack: // no update arrives when etcd returns unchanged
			default: // it is in a turn
			}
		case <-ctx.Done():
		}
	}
	return g.leave(ctx, w, nil)
}

// leave stops waiting. The loop says why the endpoint isn't programmed, unless reason is given and it is not.
func (g gatekeeper) leave(ctx context.Context, w *wait, reason error) error {
	g.loop.metrics.waits.WithLabelValues("left").Inc()
	select {
	case g.loop.asks <- func() bool { g.loop.leave(w); return false }:
		if err := <-w.reply; err == nil || reason == nil {
			return err
		}
	case <-g.loop.stopped:
	}
	return cmp.Or(reason, context.Cause(ctx))
}

// held refuses a pod whose address may belong to a pod that etcd doesn't know yet. A pod that already has its address must not retry: it
// would hold the address against its present owner until this host admits pods, and then start with it.
func (g gatekeeper) held(retry bool) error {
	if why := g.loop.source.Held(); why != "" {
		return &gate.RejectedError{Reason: why, Retry: retry, Name: gate.NameOwn}
	}
	return nil
}

// Pod implements gate.Waiter.
func (g gatekeeper) Pod(ctx context.Context, r gate.PodRequest) (gate.Pod, error) {
	if g.pods == nil {
		return gate.Pod{}, &gate.RejectedError{Reason: "it doesn't read the Kubernetes API: it runs outside of a cluster and has no kubeconfig"}
	}
	if err := g.held(true); err != nil {
		return gate.Pod{}, err
	}
	return g.pods.Pod(ctx, r)
}

// Ready implements gate.Waiter.
func (g gatekeeper) Ready(host string) error {
	if host != "" {
		if err := g.loop.etcd.checkHost(host); err != nil {
			return err
		}
	}
	reason, doubt := g.loop.health.Unready(), g.loop.report.Naming.Get()
	switch {
	case doubt != "": // health learns it in the loop's next turn
		return &gate.RejectedError{Reason: cmp.Or(reason, doubt), Retry: true, Name: gate.NameInDoubt, Undecided: status.Undecided(doubt)}
	case reason != "":
		return &gate.RejectedError{Reason: reason, Retry: true, Name: gate.NameOwn}
	}
	return nil
}

// checkHost refuses questions about another host. It may be called from outside the loop: a state's host never changes.
func (s *etcdState) checkHost(host string) error {
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

// isBack reports whether a turn would find that etcd is back.
func (l *loop) isBack() bool { return l.etcd.disconnected }

// answer answers the waiting callers that can be answered now.
func (l *loop) answer() {
	for w := range l.gate.waiting {
		if done, err := l.verdict(w.request); done {
			delete(l.gate.waiting, w)
			w.reply <- err
		}
	}
}

// verdict decides a request to the gate: done with nil if the endpoint is programmed, done with a *gate.RejectedError if it never will be,
// or not done yet.
func (l *loop) verdict(r gate.Request) (done bool, err error) {
	if err := l.etcd.checkHost(r.Endpoint.Host); err != nil {
		return true, err
	}
	path := r.Endpoint.Path()
	stored, there := l.workload.Stored(path)
	known := l.etcd.synced && l.etcd.revision >= r.Revision
	switch {
	case !there && known && !l.etcd.disconnected:
		return true, &gate.RejectedError{Reason: "endpoint " + path + " has been deleted since"}
	case !there, stored < r.Revision && !known:
		return false, nil
	}
	t := l.workload.Target(path)
	switch {
	case t == nil || t.Revision < stored:
		return false, nil
	case t.Refused != nil:
		return true, &gate.RejectedError{Reason: "endpoint " + path + " keeps no access: " + t.Refused.Error()}
	}
	return t.Applied && l.firewall.Stands(path) == nil && !l.connections.Deleting(t.Want.Addrs) && l.unmade(r) == "", nil
}

// unmade returns a profile of a Kubernetes pod that the controllers have yet to create, "" = none. Without it the pod is cut off, and lacks
// labels that policy selects by.
func (l *loop) unmade(r gate.Request) string {
	if r.Endpoint.Orchestrator != "k8s" {
		return ""
	}
	return l.firewall.Unmade(r.Endpoint.Path(), func(name string) []model.Key {
		rules, labels := model.ProfileRulesKey{Profile: name}, model.ProfileLabelsKey{Profile: name}
		switch {
		case strings.HasPrefix(name, "k8s_ns."):
			return []model.Key{rules, labels} // which may arrive separately
		case strings.HasPrefix(name, "ksa."):
			return []model.Key{labels}
		}
		return nil
	})
}

// leave answers a caller that gives up, with the reason why its endpoint isn't programmed.
func (l *loop) leave(w *wait) {
	if _, ok := l.gate.waiting[w]; !ok {
		return // answered meanwhile
	}
	delete(l.gate.waiting, w)
	w.reply <- &gate.RejectedError{Reason: l.lacks(w.request), Retry: true}
}

// lacks says why the endpoint of a request is not programmed yet.
func (l *loop) lacks(r gate.Request) string {
	path := r.Endpoint.Path()
	t := l.workload.Target(path)
	_, there := l.workload.Stored(path)
	switch reason := l.health.Unready(); {
	case reason != "":
		return reason
	case l.etcd.revision < r.Revision:
		reason := fmt.Sprintf("etcd's revision %d has not come yet, the latest is %d", r.Revision, l.etcd.revision)
		if away := l.health.Disconnected(0); away != "" {
			reason += ": " + away
		}
		return reason
	case !there && l.etcd.disconnected:
		return cmp.Or(l.health.Disconnected(0), "etcd was away until now") + ": endpoint " + path + " isn't known"
	case t != nil && t.Problem != nil:
		return "endpoint " + path + " is not programmed: " + t.Problem.Error()
	case t != nil && l.connections.Deleting(t.Want.Addrs):
		return "connections of those who had the addresses of endpoint " + path + " before are still being deleted"
	}
	if name := l.unmade(r); name != "" {
		return "profile " + name + " does not exist, which calico-controllers make: look at kubectl -n kube-system get pods -l k8s-app=calico-controllers, at their log, and at ENABLED_CONTROLLERS"
	}
	if err := l.firewall.Stands(path); err != nil {
		return "the firewall of endpoint " + path + " is not programmed: " + err.Error()
	}
	return "endpoint " + path + " is not programmed yet"
}
