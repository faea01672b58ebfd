// SPDX-License-Identifier: Apache-2.0

package eventually

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		True(t, "a second to pass", func() bool { return time.Since(start) >= time.Second })
		if took := time.Since(start); took > 1200*time.Millisecond {
			t.Errorf("waited %v for a second to pass", took)
		}

		never := errors.New("never")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := Wait(ctx, "what never comes", func() error { return never })
		if !errors.Is(err, never) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 62*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Progress(t, "ten steps, each of which takes most of the limit", func() (int, error) {
			if far := int(time.Since(start) / (Limit * 3 / 4)); far < 10 {
				return far, errors.New("not yet")
			}
			return 0, nil
		})
		if took := time.Since(start); took < 7*Limit {
			t.Errorf("it came after %v", took)
		}
	})
}
