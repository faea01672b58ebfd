// SPDX-License-Identifier: Apache-2.0

// Package eventually waits in tests for a condition to hold.
package eventually

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Wait calls condition until it returns nil, first every 2 ms, later every 100 ms.
// When ctx ends first, the error wraps ctx's error and the last one of condition.
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

// Nil fails the test if condition returns no nil within the timeout.
func Nil(t testing.TB, timeout time.Duration, what string, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := Wait(ctx, what, condition); err != nil {
		t.Fatal(err)
	}
}

var errFalse = errors.New("it does not hold")

// True fails the test if condition returns no true within the timeout.
func True(t testing.TB, timeout time.Duration, what string, condition func() bool) {
	t.Helper()
	Nil(t, timeout, what, func() error {
		if condition() {
			return nil
		}
		return errFalse
	})
}
