// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

// tell reports on endpoints that were followed.
func (l *loop) tell(paths map[string]struct{}) {
	for path := range paths {
		t := l.desired.targets[path]
		if t == nil {
			l.problems.Report(path, nil)
			l.report.Remove(path)
			l.metrics.endpoints.set(path, "")
			continue
		}
		l.problems.Report(path, l.wrong(t))
		l.tellStatus(t)
	}
	l.tellHosts()
	l.tellHealth()
}

// wrong says what is wrong with a workload endpoint as it is in etcd, nil = nothing.
func (l *loop) wrong(t *target) error {
	return cmp.Or(t.refused, l.wall.denies(t), t.untranslated)
}

// status is what is reported of a workload endpoint: it is up when it is
// connected and protected.
func (l *loop) status(t *target) model.EndpointStatus {
	if s := t.status(); s != model.EndpointUp || l.wall.stands(t.path) == nil {
		return s
	}
	return model.EndpointError
}

// tellTarget reports on an endpoint whose standing in the kernel changed.
func (l *loop) tellTarget(t *target) {
	switch {
	case t.applied:
		if !t.since.IsZero() {
			l.metrics.programmed.Observe(time.Since(t.since).Seconds())
			t.since = time.Time{}
		}
		l.log.Debug("endpoint is programmed", "key", t.path, "interface", t.want.Interface, "revision", t.revision)
	case isAbsent(t.problem):
		l.log.Debug("endpoint has no interface yet", "key", t.path, "reason", t.problem)
	default:
		// Where nothing is wrong, it is only that its interface is still to be programmed.
		if reason := cmp.Or(t.problem, l.wall.stands(t.path)); reason != nil {
			l.log.Warn("endpoint is not programmed", "key", t.path, "reason", reason)
		}
	}
	l.tellStatus(t)
}

// tellStatus reports how a workload endpoint is.
func (l *loop) tellStatus(t *target) {
	status := l.status(t)
	l.report.Set(t.path, t.key, status)
	l.metrics.endpoints.set(t.path, status)
}

// tellHealth says whether the agent serves its purpose.
func (l *loop) tellHealth() {
	switch reason := l.frozenBy(); {
	case reason != "":
		l.health.SetUnready(reason)
	case !l.applied:
		l.health.SetUnready("the host's workload interfaces have not been programmed yet")
	case l.wall.err != nil:
		l.health.SetUnready(l.wall.err.Error())
	default:
		l.health.SetUnready("")
	}
}

// sayWaiting logs what the agent waits for, once.
func (l *loop) sayWaiting(reason string) {
	if reason == l.waitsFor {
		return
	}
	if reason == "" {
		l.log.Info("etcd has been read and is ready", "revision", l.state.revision)
	} else {
		l.log.Info("waiting; what is programmed stays as it is", "reason", reason)
	}
	l.waitsFor = reason
}

// sayProblems logs what the host as a whole lacks, when that changes.
func (l *loop) sayProblems(errs []error) {
	text := problems.Reason(errors.Join(errs...))
	if text == l.hostProblem {
		return
	}
	if text == "" {
		l.log.Info("the host is in order again")
	} else {
		l.log.Warn("the host is not in order", "reason", text)
	}
	l.hostProblem = text
}

// leaveName keeps the file in which the plugin finds the node's name, and by
// which it knows that an agent is to be waited for.
func (l *loop) leaveName() {
	text := problems.Reason(l.system.writeNode())
	if text != "" && text != l.nameProblem {
		l.log.Warn("the node's name is not left for the plugin", "reason", text)
	}
	l.nameProblem = text
}

// lose notes addresses that no longer lead where they led.
func (l *loop) lose(addrs []netip.Addr) {
	l.connections.Add(connections.Work{Lost: addrs})
}

var _ hostPath = (*hostpath.Path)(nil)
