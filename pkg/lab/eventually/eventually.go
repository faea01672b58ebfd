// SPDX-License-Identifier: Apache-2.0

// Package eventually waits in tests for conditions. A wait ends when its condition is met; no result depends on how
// long it took.
package eventually

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Limit is when a test gives up waiting. It is reached only in case of a fault, however busy the machine is.
const Limit = time.Minute

// Wait calls condition until it returns nil, first every 2 ms, later every 100 ms. If ctx ends first, the error wraps
// ctx's error and the last one of condition.
func Wait(ctx context.Context, what string, condition func() error) error {
	pause := 2 * time.Millisecond
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last: %w", what, ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(pause*3/2, 100*time.Millisecond)
	}
}

// Within fails the test if condition does not return nil within limit. It is for what needs longer than Limit.
func Within(t testing.TB, limit time.Duration, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := Wait(ctx, what, condition); err != nil {
		t.Fatal(err)
	}
}

// Nil fails the test if condition does not return nil within Limit.
func Nil(t testing.TB, what string, condition func() error) {
	t.Helper()
	Within(t, Limit, what, condition)
}

var errFalse = errors.New("it does not hold")

// Holds converts a boolean condition to one for Nil and Within.
func Holds(condition func() bool) func() error {
	return func() error {
		if condition() {
			return nil
		}
		return errFalse
	}
}

// True fails the test if condition does not return true within Limit.
func True(t testing.TB, what string, condition func() bool) {
	t.Helper()
	Within(t, Limit, what, Holds(condition))
}

// Progress waits for something gradual: it fails the test if, for as long as Limit, condition neither returns nil nor a
// new number for its progress.
func Progress(t testing.TB, what string, condition func() (far int, err error)) {
	t.Helper()
	for last, done := -1, false; !done; {
		Nil(t, what, func() error {
			far, err := condition()
			if done = err == nil; done || far != last {
				last, err = far, nil
			}
			return err
		})
	}
}

// Receive returns a value received from c, the zero value if c is closed. It fails the test if nothing is received
// within Limit.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Limit):
		t.Fatalf("wait for %s: it did not come in %v", what, Limit)
		panic("unreachable")
	}
}

// Find receives from c until is returns true for a value. It fails the test if that doesn't happen within Limit, or c
// is closed first.
func Find[T any](t testing.TB, what string, c <-chan T, is func(T) bool) {
	t.Helper()
	limit := time.After(Limit)
	for {
		select {
		case v, open := <-c:
			if !open {
				t.Fatalf("wait for %s: the channel was closed", what)
			}
			if is(v) {
				return
			}
		case <-limit:
			t.Fatalf("wait for %s: it did not come in %v", what, Limit)
		}
	}
}
