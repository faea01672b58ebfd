// SPDX-License-Identifier: Apache-2.0

// Package reconcile keeps things as desired: a change wakes it, and what fails is tried again.
package reconcile

import (
	"context"
	"time"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/retry"
)

// A Loop keeps one thing as desired. Use New to create one.
type Loop struct {
	keep   func(context.Context) (time.Duration, error)
	timing Timing
	wake   mailbox.Signal
}

// Timing is when a Loop calls its function, besides when it is woken.
type Timing struct {
	// Every is the time until the next call, if the call doesn't return another. 0: never.
	Every time.Duration
	// Retry is the growing time until the next call after one that failed, at most Every if that is set. The zero value: Every.
	Retry retry.Backoff
}

// New returns a loop around keep, which brings the thing to its desired state; calls don't overlap. keep returns after which time to call
// it again even if nothing changes, 0 = as the timing says, and why the thing isn't as desired: Run uses the error for the timing alone, so
// keep must report it.
func New(t Timing, keep func(context.Context) (again time.Duration, err error)) *Loop {
	return &Loop{keep: keep, timing: t, wake: mailbox.NewSignal()}
}

// Wake says that something may have changed. It never blocks; the next call sees what changed before.
func (l *Loop) Wake() { l.wake.Send() }

// Run calls the function at once and then as due until the context ends; the error is always nil. Run may be called again afterwards.
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
