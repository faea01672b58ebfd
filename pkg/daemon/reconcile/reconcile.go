// SPDX-License-Identifier: Apache-2.0

// Package reconcile keeps things as they are desired: what may have changed wakes it, and what fails is tried again.
package reconcile

import (
	"context"
	"time"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/retry"
)

// A Loop keeps one thing. Make one with New.
type Loop struct {
	keep   func(context.Context) (time.Duration, error)
	timing Timing
	wake   mailbox.Signal
}

// Timing is when a Loop calls what keeps the thing, beside when it is woken.
type Timing struct {
	// Every is the time after which it is called without being woken, where a call doesn't say another. 0: never.
	Every time.Duration
	// Retry is the time after a call that fails, each time longer, and at most Every where that is less. The zero value: Every.
	Retry retry.Backoff
}

// New makes a loop of what brings the thing to what is desired, in one goroutine. It returns after which time to call it again although
// nothing has changed, 0 = as the timing says, and why it isn't as desired, which it has told whoever is to know.
func New(t Timing, keep func(context.Context) (again time.Duration, err error)) *Loop {
	return &Loop{keep: keep, timing: t, wake: mailbox.NewSignal()}
}

// Wake says that something may have changed. It never waits; the call that follows sees what was there before.
func (l *Loop) Wake() { l.wake.Send() }

// Run keeps the thing, from now on and until the context ends; the error is always nil. It may be called again then.
func (l *Loop) Run(ctx context.Context) error {
	backoff := l.timing.Retry
	for ctx.Err() == nil {
		again, err := l.keep(ctx)
		if err == nil {
			backoff.Reset()
		}
		switch {
		case again > 0:
		case err != nil && backoff.First > 0:
			again = backoff.Next()
			if l.timing.Every > 0 {
				again = min(again, l.timing.Every)
			}
		default:
			again = l.timing.Every
		}
		var due <-chan time.Time
		if again > 0 {
			due = time.After(again)
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-due:
		}
	}
	return nil
}
