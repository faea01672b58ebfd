// SPDX-License-Identifier: Apache-2.0

// Package writer brings keys of etcd to what is desired: many in one transaction, several transactions at a time, and none
// that fails holds up another.
package writer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/controllers/fenced"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/pkg/store"
)

const (
	// batch is how many keys go into one transaction: etcd does it as fast as one key, nearly.
	batch = 100
	// share is how many of them are of one owner: what another's change waits for.
	share = 5
	// workers is how many transactions are under way at a time.
	workers = 4

	requestTimeout = 10 * time.Second
	firstPause     = 100 * time.Millisecond
	longestPause   = 5 * time.Second
)

// Etcd is what a writer writes to: fenced.Store.
type Etcd interface {
	Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...store.TransactOption) (int64, error)
}

// Object is what keys are made of, by its names in Kubernetes.
type Object struct{ Kind, Namespace, Name, UID string }

// Keeper knows what keys are to hold.
type Keeper interface {
	// Owner says whose a key is, such as the namespace. Owners take turns: none waits for all keys of another.
	Owner(k model.Key) string
	// Of is the object that a key is made of; of one that none makes only the kind is known.
	Of(k model.Key) (of Object, made bool)
	// Decide says what to write of a key, by what etcd holds of it: nothing where it is as desired. The writer compares the
	// key; the change may have no other. An error is of this key alone.
	Decide(ctx context.Context, e model.Entry, k model.Key) (model.Change, error)
}

// Reporter is told what becomes of keys.
type Reporter interface {
	// Wrote tells of a key that is as desired now, and how long that took since it became known.
	Wrote(of Object, took time.Duration)
	// Failed tells of a key that could not be written and is tried again later.
	Failed(of Object, k model.Key, err error)
	// Restored tells of a key that was written again, of those that Spoiled was told of.
	Restored(of Object, k model.Key)
}

// Config is what a writer works with. All fields are required.
type Config struct {
	Etcd     Etcd
	Problems *problems.Ledger
	Reporter Reporter
	// What is written.
	What string
}

// Writer writes the keys that it is told of. Make one with New.
type Writer struct {
	Config
	keeper Keeper
	queue  *queue
}

// New makes a writer of nothing.
func New(cfg Config, of Keeper) *Writer { return &Writer{cfg, of, newQueue(of.Owner)} }

// Dirty has keys looked at, by whom leads. It never waits.
func (w *Writer) Dirty(keys ...model.Key) { w.queue.add(item{since: time.Now()}, keys...) }

// Clean has keys forgotten that are known to be as desired, as another has written them.
func (w *Writer) Clean(keys ...model.Key) { w.queue.drop(keys...) }

// Spoiled is Dirty for keys that were as desired until somebody else changed or deleted them.
func (w *Writer) Spoiled(keys ...model.Key) {
	w.queue.add(item{since: time.Now(), spoiled: true}, keys...)
}

// Waiting is how many keys are to be looked at.
func (w *Writer) Waiting() int { return w.queue.size() }

// Run writes while the context lasts.
func (w *Writer) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { w.work(ctx) })
	}
	all.Wait()
}

func (w *Writer) work(ctx context.Context) {
	backoff := retry.Backoff{First: firstPause, Longest: longestPause}
	for ctx.Err() == nil {
		keys := w.queue.take(batch, share)
		if len(keys) == 0 {
			select {
			case <-ctx.Done():
			case <-w.queue.wake:
			}
			continue
		}
		if w.write(ctx, keys) {
			backoff.Reset()
			continue
		}
		_ = retry.Wait(ctx, backoff.Next()) // the context's is seen above
	}
}

// write brings keys to what is desired. It reports whether etcd could be asked at all.
func (w *Writer) write(ctx context.Context, keys []model.Key) bool {
	wants := make([]model.Range, len(keys))
	for i, k := range keys {
		wants[i] = model.KeyRange(k)
	}
	var bad map[model.Key]error
	var written map[model.Key]bool
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := w.Etcd.Transact(ctx, wants, func(v *model.View) (model.Change, error) {
		var all model.Change
		bad, written = map[model.Key]error{}, map[model.Key]bool{}
		for _, k := range keys {
			change, err := w.keeper.Decide(ctx, v.Get(k), k)
			switch {
			case err != nil:
				bad[k] = err
			case !change.Empty():
				written[k] = true
				all.Merge(change)
				all.Compares = append(all.Compares, v.Compare(k))
			}
		}
		return all, nil
	})
	switch {
	case err == nil:
		w.say(nil)
		for _, k := range keys {
			if err := bad[k]; err != nil {
				w.fail(k, err)
				continue
			}
			of, made := w.keeper.Of(k)
			took, spoiled := w.queue.done(time.Now(), k)
			w.Reporter.Wrote(of, took)
			if made && spoiled && written[k] {
				w.Reporter.Restored(of, k)
			}
		}
		return true
	case len(keys) > 1 && unanswered(bad):
		w.queue.back(keys, true) // so many questions take longer than a transaction may
		return true
	case away(err):
		if !errors.Is(err, fenced.ErrNotLeading) && !errors.Is(err, context.Canceled) {
			w.say(err)
		}
		w.queue.back(keys, false)
		return false
	case len(keys) > 1:
		w.queue.back(keys, true) // one by one, until the bad one is known
		return true
	}
	w.fail(keys[0], err)
	return true
}

func (w *Writer) fail(k model.Key, err error) {
	of, _ := w.keeper.Of(k)
	w.Reporter.Failed(of, k, err)
	w.queue.retry(k)
}

// unanswered reports whether what decides ran out of time.
func unanswered(bad map[model.Key]error) bool {
	for _, err := range bad {
		if errors.Is(err, context.DeadlineExceeded) {
			return true
		}
	}
	return false
}

// away reports whether an error says nothing of the keys: they are tried again as soon as etcd can be written.
func away(err error) bool {
	for _, e := range []error{
		fenced.ErrNotLeading, fenced.ErrNotReady, store.ErrUnavailable, store.ErrReadOnly, store.ErrUnknownOutcome, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.Is(err, store.ErrAuth) && !errors.Is(err, store.ErrDenied)
}

// say tells why nothing can be written, and when it can again.
func (w *Writer) say(err error) {
	if errors.Is(err, fenced.ErrNotReady) {
		err = nil // as on every new cluster, for a moment
	}
	w.Problems.Tell(problems.Host, w.What+" in etcd", err)
}
