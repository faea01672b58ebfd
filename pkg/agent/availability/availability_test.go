// SPDX-License-Identifier: Apache-2.0

package availability

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
)

// api is an API whose watch the test controls.
type api struct {
	mu      sync.Mutex
	seen    func(bool)
	sets    int
	err     error
	unready string
}

// change lets the test change it.
func (a *api) change(how func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	how()
}

func (a *api) Unready() (reason string) {
	a.change(func() { reason = a.unready })
	return reason
}

func (a *api) Watch(ctx context.Context, _ string, seen func(bool)) error {
	a.change(func() { a.seen = seen })
	<-ctx.Done()
	return nil
}

func (a *api) Set(context.Context, string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sets++
	return a.err
}

// TestWhen: the condition is set whenever it is wrong, from when the agent first serves and only while it does.
func TestWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, log, served := &api{unready: "starting"}, new(bytes.Buffer), make(chan struct{})
		k := New(Config{Node: "n", API: a, Served: served, Unready: a.Unready, Problems: problems.New(slog.New(slog.NewTextHandler(log, nil))), Logger: slog.New(slog.NewTextHandler(log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		expect := func(when string, sets int) {
			t.Helper()
			time.Sleep(retryInterval)
			synctest.Wait()
			a.change(func() {
				if a.sets != sets {
					t.Errorf("%s: set %d times, want %d", when, a.sets, sets)
				}
			})
		}
		expect("before it serves", 0)
		a.change(func() {
			if a.seen != nil {
				t.Error("the API is watched before the agent serves")
			}
			a.unready = ""
		})
		close(served)
		expect("no such Node", 0)
		a.seen(false)
		expect("there is one", 1)
		expect("its watch hasn't said that it is right", 1)
		a.seen(true)
		expect("it is right", 1)
		a.seen(false)
		expect("somebody has set it", 2)
		a.change(func() { a.unready = "no change in etcd is heard of" })
		a.seen(false)
		expect("the agent doesn't serve", 2)
		a.change(func() { a.unready = "" })
		expect("it serves again", 3)
		a.change(func() { a.err = errors.New("patch the status of Node n: forbidden") })
		a.seen(false)
		expect("refused", 5) // at once, and again
		expect("refused", 6)
		a.change(func() { a.err = nil })
		expect("allowed", 7)
		expect("allowed", 7)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "forbidden"); n != 1 {
			t.Errorf("it is logged %d times that the API refuses", n)
		}
	})
}
