// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"testing"
	"time"
)

func TestRepairs(t *testing.T) {
	var r Repairs
	start := time.Unix(1_000_000, 0)
	for i, step := range []struct {
		after   time.Duration
		what    string
		changes int
		want    int
	}{
		{0, "cali1", 2, 2},
		{time.Second, "cali1", 1, 0},
		{time.Second, "cali2", 1, 1}, // another is said at once
		{2 * time.Second, "cali1", 3, 0},
		{time.Minute, "cali1", 1, 5},
		{time.Minute + time.Second, "cali1", 1, 0},
		{3 * time.Minute, "cali3", 1, 1},
		{3 * time.Minute, "cali1", 1, 1}, // long ago: it begins anew
	} {
		if got := r.Say(step.what, step.changes, start.Add(step.after)); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
	if n := len(r.of); n != 2 {
		t.Errorf("it keeps %d, want those of the last minute", n)
	}
}
