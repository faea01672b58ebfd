// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/retry"
)

// calls runs a loop for a time, while do triggers events, and returns when the function was called.
func calls(t *testing.T, timing Timing, result func(call int) (time.Duration, error), lasts time.Duration, do func(wake func())) (at []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := New(timing, func(context.Context) (time.Duration, error) {
			at = append(at, time.Since(began))
			return result(len(at))
		})
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		go do(l.Wake)
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return at
}

func nothing(func())                       {}
func well(int) (time.Duration, error)      { return 0, nil }
func seconds(n ...int) (d []time.Duration) { return durations(time.Second, n) }
func durations(unit time.Duration, n []int) (d []time.Duration) {
	for _, x := range n {
		d = append(d, time.Duration(x)*unit)
	}
	return d
}

func TestLoop(t *testing.T) {
	bad := errors.New("bad")
	at := retry.Backoff{First: time.Microsecond, Longest: time.Microsecond, Exact: true}
	for _, test := range []struct {
		name   string
		timing Timing
		result func(int) (time.Duration, error)
		do     func(wake func())
		want   []time.Duration
	}{
		{"at once, and when it is woken", Timing{}, well, func(wake func()) {
			time.Sleep(3 * time.Second)
			wake()
		}, seconds(0, 3)},
		{"all that wakes it during a call is one call", Timing{}, func(call int) (time.Duration, error) {
			if call == 1 {
				time.Sleep(2 * time.Second)
			}
			return 0, nil
		}, func(wake func()) {
			time.Sleep(time.Second)
			for range 5 {
				wake()
			}
		}, seconds(0, 2)},
		{"every four seconds", Timing{Every: 4 * time.Second}, well, nothing, seconds(0, 4, 8)},
		{"as a call says", Timing{Every: 4 * time.Second}, func(call int) (time.Duration, error) { return time.Duration(call) * time.Second, nil }, nothing, seconds(0, 1, 3, 6)},
		{"what fails without a backoff waits for its time", Timing{Every: 4 * time.Second}, func(int) (time.Duration, error) { return 0, bad }, nothing, seconds(0, 4, 8)},
		{"what fails once is tried again", Timing{Every: 4 * time.Second, Retry: at}, func(call int) (time.Duration, error) {
			if call == 2 {
				return 0, bad
			}
			return 0, nil
		}, nothing, append(seconds(0, 4, 4), seconds(8)...)},
	} {
		got := calls(t, test.timing, test.result, 9*time.Second, test.do)
		for i := range got {
			got[i] = got[i].Round(time.Millisecond)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestRetry: what fails is tried later each time, up to the longest pause, and soon again once it has worked.
func TestRetry(t *testing.T) {
	at := calls(t, Timing{Retry: retry.Backoff{First: time.Second, Longest: 4 * time.Second}}, func(call int) (time.Duration, error) {
		if call == 6 {
			return time.Millisecond, nil
		}
		return 0, errors.New("bad")
	}, time.Minute, nothing)
	for i, about := range seconds(1, 2, 4, 4, 4, 0, 1, 2) {
		if d := at[i+1] - at[i]; about > 0 && (d < about/2 || d > about*3/2) {
			t.Errorf("after call %d: %v, want about %v", i+1, d, about)
		}
	}
}
