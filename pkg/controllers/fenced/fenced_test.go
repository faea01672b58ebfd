// SPDX-License-Identifier: Apache-2.0

package fenced_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/controllers/fenced"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

var pool = model.GlobalConfigKey{Name: "LogSeverityScreen"}

// put writes a setting, as a leader may.
func put(ctx context.Context, s *fenced.Store, text string) error {
	_, err := s.Transact(ctx, []model.Range{model.KeyRange(pool)}, func(v *model.View) (model.Change, error) {
		return model.Change{Compares: []model.Compare{v.Compare(pool)}, Puts: []model.Put{{Key: pool, Value: model.Text(text)}}}, nil
	})
	return err
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// lead makes a store lead until stop is called; it returns once work has begun.
func lead(t *testing.T, s *fenced.Store, identity string, holds func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	began, done := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(done)
		s.Lead(ctx, identity, holds, func(ctx context.Context) {
			began <- struct{}{}
			<-ctx.Done()
		})
	}()
	<-began
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func yes(context.Context) error { return nil }

// Writes of a process that has lost the lead have no effect, even if it doesn't know it yet.
func TestFence(t *testing.T) {
	server := etcd.New(t)
	server.Put(model.ReadyKey{}, model.Ready(true))
	one, two := fenced.New(server.Store, quiet()), fenced.New(server.Store, quiet())
	if err := put(t.Context(), one, "never"); !errors.Is(err, fenced.ErrNotLeading) {
		t.Fatalf("a follower writes: %v", err)
	}
	mayLead := make(chan error, 1)
	mayLead <- nil
	no := errors.New("the lease is another's")
	lead(t, one, "one", func(context.Context) error {
		select {
		case err := <-mayLead:
			return err
		default:
			return no
		}
	})
	if err := put(t.Context(), one, "one"); err != nil {
		t.Fatal(err)
	}

	// Another takes the lead between a decision of the first and its commit.
	var stop func()
	_, err := one.Transact(t.Context(), nil, func(*model.View) (model.Change, error) {
		if stop == nil {
			stop = lead(t, two, "two", yes)
		}
		return model.Change{Puts: []model.Put{{Key: pool, Value: model.Text("stale")}}}, nil
	})
	if !errors.Is(err, fenced.ErrNotLeading) {
		t.Errorf("one that has lost the lead writes: %v", err)
	}
	if err := put(t.Context(), one, "stale"); !errors.Is(err, fenced.ErrNotLeading) {
		t.Errorf("one that has lost the lead writes: %v", err)
	}
	if got := server.Get(pool); got != model.Text("one") {
		t.Errorf("etcd holds %v", got)
	}
	if err := put(t.Context(), two, "two"); err != nil {
		t.Errorf("the new leader: %v", err)
	}
	if got := server.Get(model.LeaderKey{}); got != model.Text("two") {
		t.Errorf("the leader is %v", got)
	}
	stop()
	if got := server.Get(model.LeaderKey{}); got != nil {
		t.Errorf("nobody leads, and etcd says %v", got)
	}
}

// A process that can't write that it leads gives up.
func TestPatience(t *testing.T) {
	s := fenced.New(etcd.New(t).Store, quiet())
	s.Patience = time.Millisecond
	asked := 0
	s.Lead(t.Context(), "one", func(context.Context) error {
		asked++
		return errors.New("the lease is another's")
	}, func(context.Context) { t.Error("it leads") })
	if asked == 0 {
		t.Error("it did not try")
	}
}

// Nothing is written before etcd is ready, and a leader whose key etcd has lost leads again.
func TestFenceLater(t *testing.T) {
	server := etcd.New(t)
	s := fenced.New(server.Store, quiet())
	lead(t, s, "one", yes)
	if err := put(t.Context(), s, "early"); !errors.Is(err, fenced.ErrNotReady) {
		t.Errorf("etcd isn't ready: %v", err)
	}
	server.Put(model.ReadyKey{}, model.Ready(true))
	server.Remove(model.LeaderKey{})
	server.Until("it writes again", func() bool { return put(t.Context(), s, "late") == nil })
	if got := server.Get(model.LeaderKey{}); got != model.Text("one") {
		t.Errorf("the leader is %v", got)
	}
}
