// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
)

// audited is what an audit beside the loop found.
type audited struct {
	report   hostpath.Report
	doubtful []string // interfaces
	err      error
	took     time.Duration
}

// audit has all read that the agent keeps right. Adding it up tells whether
// anything changed; only where something did is it taken apart, beside the loop:
// what is to be changed meanwhile doesn't wait for it.
func (l *loop) audit(ctx context.Context) {
	l.leaveName()
	l.readNeeded()
	l.mtu()
	l.route.due = l.route.due || l.route.fresh && time.Now().Before(l.route.until)
	l.route.fresh = false
	if l.check != nil {
		return // the one before still runs
	}
	if same, err := l.path.Unchanged(ctx); same && err == nil && !l.whole {
		l.strays.read = time.Now()
		l.sayStrays()
		return
	}
	l.readInterfaces()
	if l.whole || !l.applied {
		return // it is due anyway
	}
	// Where an error lasts, taking all apart tells of it.
	path, check, began := l.path, make(chan audited, 1), time.Now()
	l.check, l.checked = check, began
	go func() {
		report, doubtful, err := path.Audit(ctx)
		check <- audited{report, doubtful, err, time.Since(began)}
	}()
}

// noteAudit takes in what came of it. What doesn't look right is looked at again
// by the loop, which knows what has changed since.
func (l *loop) noteAudit(ctx context.Context, a audited) (ok bool) {
	l.check = nil
	l.take(ctx, connected{true, a.report, a.err, a.took})
	for _, name := range a.doubtful {
		if l.desired.interfaces[name] != nil {
			l.drifted[name] = struct{}{}
		} else {
			l.whole = true
		}
	}
	return a.err == nil
}
