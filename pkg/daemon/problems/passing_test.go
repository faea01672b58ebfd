// SPDX-License-Identifier: Apache-2.0

package problems

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"
)

func TestPassing(t *testing.T) {
	var p Passing
	overtaken, other := fmt.Errorf("list links: %w", syscall.EINTR), errors.New("no such device")
	start := time.Unix(1_000_000, 0)
	for i, step := range []struct {
		after time.Duration
		err   error
		hide  bool
	}{
		{0, overtaken, true},
		{passingPatience - 1, overtaken, true},
		{passingPatience, overtaken, false}, // it lasts
		{passingPatience + 1, overtaken, false},
		{passingPatience + 2, nil, false},
		{passingPatience + 3, overtaken, true},
		{passingPatience + 4, other, false},
		{3 * passingPatience, overtaken, true},
	} {
		if got := p.Hide(step.err, start.Add(step.after)); got != step.hide {
			t.Errorf("%d, %v after %v: hidden: %v", i, step.err, step.after, got)
		}
	}
}
