// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// audit has all read that the agent keeps right. Adding it up tells whether
// anything changed; only where something did is it taken apart.
func (l *loop) audit(ctx context.Context) {
	l.endCheck(ctx)
	l.leaveName()
	l.mtu()
	l.route.due = l.route.due || l.route.fresh && time.Now().Before(l.route.until)
	l.route.fresh = false
	if same, err := l.path.Unchanged(ctx); same && err == nil && !l.whole {
		return
	}
	l.readInterfaces()
	if l.whole || !l.applied {
		return // it is due anyway
	}
	// Where an error lasts, taking all apart tells of it.
	whole := l.connectAll(ctx)
	l.check, l.checked = make(chan connected, 1), time.Now()
	go func(check chan<- connected) { check <- whole() }(l.check)
}

// endCheck waits until what an audit takes apart beside the loop is done. What is
// to be connected in another way may change only then; policy at any time.
func (l *loop) endCheck(ctx context.Context) {
	if l.check != nil {
		l.noteCheck(ctx, <-l.check)
	}
}

// noteCheck takes in what came of it. What drifted meanwhile is still to be read.
func (l *loop) noteCheck(ctx context.Context, c connected) (ok bool) {
	l.check = nil
	l.take(ctx, c)
	return c.err == nil
}
