// SPDX-License-Identifier: Apache-2.0

// Package retry is for what fails and is tried again: how long to wait before that, and which failures are news.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait after each of several failures in a row: First, then twice as long each time, up to Longest.
type Backoff struct {
	First, Longest time.Duration
	// Exact leaves out the jitter, which keeps many from asking one at the same time: what is tried is this host's own.
	Exact bool

	last time.Duration // without jitter; 0: it has worked
}

// Next returns how long to wait after one more failure, with jitter of half of it.
func (b *Backoff) Next() time.Duration {
	if b.last = min(max(2*b.last, b.First), b.Longest); b.Exact {
		return b.last
	}
	return b.last/2 + rand.N(b.last)
}

// Reset says that it has worked.
func (b *Backoff) Reset() { b.last = 0 }

// Wait waits for a time. The error is the context's, where that ends first.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// News knows what was told last of something. The zero value is of nothing wrong.
type News struct{ text string }

// Is reports whether an error, or nil, says something else than the last.
func (n *News) Is(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == n.text {
		return false
	}
	n.text = text
	return true
}
