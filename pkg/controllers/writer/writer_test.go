// SPDX-License-Identifier: Apache-2.0

package writer_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/pkg/store"
)

// slowly is an empty etcd. It refuses decisions that come too late.
type slowly struct{}

func (slowly) Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), _ ...store.TransactOption) (int64, error) {
	view := model.NewView()
	for _, r := range wants {
		view.Add(r, 1, nil)
	}
	if _, err := decide(view); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("commit: %w: %w", store.ErrUnavailable, ctx.Err())
	}
	return 1, nil
}

// keeper decides as the test says, and records what it is told. A key is named after its policy.
type keeper struct {
	*testing.T
	decide func(ctx context.Context, name string) error

	mu                sync.Mutex
	written, restored []string
}

func newWriter(t *testing.T, decide func(ctx context.Context, name string) error) (*keeper, *writer.Writer) {
	k := &keeper{T: t, decide: decide}
	return k, writer.New(writer.Config{Etcd: slowly{}, Problems: problems.New(slog.New(slog.DiscardHandler)), Reporter: k}, k)
}

func key(name string) model.Key { return model.PolicyKey{Tier: "default", Policy: name} }

// Owner returns what comes before a dot.
func (*keeper) Owner(key model.Key) string {
	owner, _, _ := strings.Cut(key.(model.PolicyKey).Policy, ".")
	return owner
}

func (*keeper) Of(key model.Key) (of writer.Object, made bool) {
	return writer.Object{Name: key.(model.PolicyKey).Policy}, true
}

// Decide changes a key, unless it is called good.
func (k *keeper) Decide(ctx context.Context, _ model.Entry, key model.Key) (model.Change, error) {
	name := key.(model.PolicyKey).Policy
	if err := k.decide(ctx, name); err != nil || name == "good" {
		return model.Change{}, err
	}
	return model.Change{Deletes: []model.Key{key}}, nil
}

func (k *keeper) Wrote(of writer.Object, _ time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written = append(k.written, of.Name)
}

func (k *keeper) Failed(of writer.Object, _ model.Key, err error) { k.Errorf("%s: %v", of.Name, err) }

func (k *keeper) Restored(of writer.Object, _ model.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restored = append(k.restored, of.Name)
}

// TestSlowQuestions: a batch has more keys than can be asked about during a transaction.
func TestSlowQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		k, w := newWriter(t, func(ctx context.Context, _ string) error {
			if err := retry.Wait(ctx, 150*time.Millisecond); err != nil {
				return fmt.Errorf("ask: %w", err)
			}
			return nil
		})
		for i := range 100 {
			w.Dirty(key(fmt.Sprint("p", i)))
		}
		w.Run(ctx)
		slices.Sort(k.written)
		if n := len(slices.Compact(k.written)); n != 100 {
			t.Errorf("%d of 100 keys are written after two minutes", n)
		}
	})
}

// TestSpoiled: keys that overwrote another writer's change are reported, and no others.
func TestSpoiled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		k, w := newWriter(t, func(context.Context, string) error { return nil })
		w.Dirty(key("desired anew"))
		for _, name := range []string{"desired anew", "good", "spoiled"} {
			w.Spoiled(key(name))
			w.Dirty(key(name))
		}
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		synctest.Wait()
		stop()
		<-done
		if diff := cmp.Diff([]string{"spoiled"}, k.restored); diff != "" {
			t.Errorf("restored (-want +got):\n%s", diff)
		}
	})
}

// TestOwners: a key of one namespace is written after what the workers have in hand, two shares each, however many of another wait.
func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		k, w := newWriter(t, func(ctx context.Context, _ string) error {
			return retry.Wait(ctx, 50*time.Millisecond) // the API is asked
		})
		for i := range 1000 {
			w.Dirty(key(fmt.Sprint("a.", i)))
		}
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(1025 * time.Millisecond) // when no worker is between two shares
		k.mu.Lock()
		before := len(k.written)
		k.mu.Unlock()
		w.Dirty(key("b.0"))
		time.Sleep(time.Minute)
		stop()
		<-done
		if at := slices.Index(k.written, "b.0"); at < 0 || at-before > 40 || len(k.written) != 1001 {
			t.Errorf("b's key is written after %d of a's, %d are written in all", at-before, len(k.written))
		}
	})
}
