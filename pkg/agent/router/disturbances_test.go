// SPDX-License-Identifier: Apache-2.0

package router

import (
	"testing"
	"time"
)

func TestClockJump(t *testing.T) {
	for _, tt := range []struct{ said, passed, want time.Duration }{
		{10 * time.Second, 10 * time.Second, 0},
		{10*time.Second + 5*time.Millisecond, 10 * time.Second, 0},
		{12 * time.Second, 10 * time.Second, 2 * time.Second},
		{10*time.Second - 3*time.Hour, 10 * time.Second, -3 * time.Hour},
		{time.Hour + 3*time.Second, time.Hour, 0}, // what a daemon may change in that time
		{time.Hour + time.Minute, time.Hour, time.Minute},
	} {
		if got := clockJump(tt.said, tt.passed); got != tt.want {
			t.Errorf("%v where %v have passed: %v, want %v", tt.said, tt.passed, got, tt.want)
		}
	}
}
