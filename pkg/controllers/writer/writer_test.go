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
	"github.com/calico-go/calico/pkg/store"
)

// slowly is an etcd that holds nothing. It refuses what was decided too late.
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

// TestSlowQuestions has more keys in a batch than can be asked for while a transaction may last.
func TestSlowQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		var mu sync.Mutex
		written := map[model.Key]bool{}
		w := writer.New(writer.Config{
			Etcd: slowly{}, Problems: problems.New(slog.New(slog.DiscardHandler)), Owner: model.Key.Path,
			Decide: func(ctx context.Context, _ model.Entry, k model.Key) (model.Change, error) {
				select {
				case <-ctx.Done():
					return model.Change{}, fmt.Errorf("ask: %w", ctx.Err())
				case <-time.After(150 * time.Millisecond):
				}
				return model.Change{Deletes: []model.Key{k}}, nil
			},
			Wrote: func(k model.Key, _ time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				if written[k] = true; len(written) == 100 {
					stop()
				}
			},
			Failed: func(k model.Key, err error) { t.Errorf("%s: %v", k.Path(), err) },
		})
		for i := range 100 {
			w.Dirty(model.PolicyKey{Tier: "default", Policy: fmt.Sprint("p", i)})
		}
		w.Run(ctx)
		if len(written) != 100 {
			t.Errorf("%d of 100 keys are written after two minutes", len(written))
		}
	})
}

// TestSpoiled tells of keys that were written over what somebody else had written, and of no other.
func TestSpoiled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		key := func(name string) model.Key { return model.PolicyKey{Tier: "default", Policy: name} }
		var mu sync.Mutex
		var restored []model.Key
		w := writer.New(writer.Config{
			Etcd: slowly{}, Problems: problems.New(slog.New(slog.DiscardHandler)), Owner: model.Key.Path,
			Decide: func(_ context.Context, _ model.Entry, k model.Key) (model.Change, error) {
				if k == key("as desired already") {
					return model.Change{}, nil
				}
				return model.Change{Deletes: []model.Key{k}}, nil
			},
			Wrote:  func(model.Key, time.Duration) {},
			Failed: func(k model.Key, err error) { t.Errorf("%s: %v", k.Path(), err) },
			Restored: func(k model.Key) {
				mu.Lock()
				defer mu.Unlock()
				restored = append(restored, k)
			},
		})
		w.Dirty(key("desired anew"))
		for _, name := range []string{"desired anew", "as desired already", "spoiled"} {
			w.Spoiled(key(name))
			w.Dirty(key(name))
		}
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		synctest.Wait()
		stop()
		<-done
		if diff := cmp.Diff([]model.Key{key("spoiled")}, restored); diff != "" {
			t.Errorf("restored (-want +got):\n%s", diff)
		}
	})
}

// TestOwners: a key of one namespace is written after what the workers have at hand, two shares each, however much more of another waits.
func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		key := func(owner string, i int) model.Key {
			return model.PolicyKey{Tier: "default", Policy: fmt.Sprint(owner, ".", i)}
		}
		owner := func(k model.Key) string {
			namespace, _, _ := strings.Cut(k.(model.PolicyKey).Policy, ".")
			return namespace
		}
		var mu sync.Mutex
		var written []string
		w := writer.New(writer.Config{
			Etcd: slowly{}, Problems: problems.New(slog.New(slog.DiscardHandler)), Owner: owner,
			Decide: func(_ context.Context, _ model.Entry, k model.Key) (model.Change, error) {
				time.Sleep(50 * time.Millisecond) // the API is asked
				return model.Change{Deletes: []model.Key{k}}, nil
			},
			Wrote: func(k model.Key, _ time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				written = append(written, owner(k))
			},
			Failed: func(k model.Key, err error) { t.Errorf("%s: %v", k.Path(), err) },
		})
		for i := range 1000 {
			w.Dirty(key("a", i))
		}
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(1025 * time.Millisecond) // when no worker is between two shares
		mu.Lock()
		before := len(written)
		mu.Unlock()
		w.Dirty(key("b", 0))
		time.Sleep(time.Minute)
		stop()
		<-done
		if at := slices.Index(written, "b"); at < 0 || at-before > 40 || len(written) != 1001 {
			t.Errorf("b's key is written after %d of a's, %d are written in all", at-before, len(written))
		}
	})
}
