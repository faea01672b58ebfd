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
