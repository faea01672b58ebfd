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
		{3 * time.Minute, "cali1", 1, 1}, // what was counted is of long ago: it begins anew
		{5*time.Minute + time.Second, "cali3", 1, 1},
	} {
		if got := r.Say(step.what, step.changes, start.Add(step.after)); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
	if n := len(r.of); n != 1 {
		t.Errorf("it keeps %d, want that of the last two minutes", n)
	}
}

// TestRepairsOfMany has several things fought over: nothing counted is lost.
func TestRepairsOfMany(t *testing.T) {
	var r Repairs
	now := time.Unix(1_000_000, 0)
	said := map[string]int{}
	const rounds = 9000 // three minutes
	for range rounds {
		for _, what := range []string{"cali1", "cali2", "cali3"} {
			said[what] += r.Say(what, 1, now)
		}
		now = now.Add(20 * time.Millisecond)
	}
	now = now.Add(time.Second)
	for _, what := range []string{"cali3", "cali2", "cali1"} {
		if said[what] += r.Say(what, 1, now); said[what] != rounds+1 {
			t.Errorf("%s: told of %d changes, want %d", what, said[what], rounds+1)
		}
	}
}
