// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	b := Backoff{First: 100 * time.Millisecond, Longest: time.Second}
	for range 2 {
		for _, about := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, time.Second, time.Second} {
			if d := b.Next(); d < about/2 || d >= about+about/2 {
				t.Errorf("%v, want %v by about a half", d, about)
			}
		}
		b.Reset()
	}
	exact := Backoff{First: time.Second, Longest: 3 * time.Second, Exact: true}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if d := exact.Next(); d != want {
			t.Errorf("exactly %v, want %v", d, want)
		}
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Wait(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Wait(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestNews(t *testing.T) {
	var n News
	one, other := errors.New("one"), errors.New("other")
	for i, test := range []struct {
		err  error
		want bool
	}{{nil, false}, {one, true}, {one, false}, {errors.New("one"), false}, {other, true}, {nil, true}, {nil, false}, {other, true}} {
		if got := n.Is(test.err); got != test.want {
			t.Errorf("%d: %v: news %v, want %v", i, test.err, got, test.want)
		}
	}
}
