// SPDX-License-Identifier: Apache-2.0

// Package writer brings keys of etcd to their desired state: many in one transaction and several transactions at a time. A
// key that fails does not hold up others.
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
	// batch is how many keys go into one transaction, which takes etcd hardly longer than one key.
	batch = 100
	// share is how many of them may be of one owner: other owners' changes wait for no more.
	share = 5
	// workers is how many transactions run at a time.
	workers = 4

	requestTimeout = 10 * time.Second
	firstPause     = 100 * time.Millisecond
	longestPause   = 5 * time.Second
)

// Etcd is what a writer writes to; fenced.Store is one.
type Etcd interface {
	Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...store.TransactOption) (int64, error)
}

// Object is a Kubernetes object from which keys are made.
type Object struct{ Kind, Namespace, Name, UID string }

// Keeper knows what keys should hold.
type Keeper interface {
	// Owner returns the owner of a key, such as the namespace. Owners take turns: none waits for all keys of another.
	Owner(k model.Key) string
	// Of returns the object that makes a key. If none does, only its kind is set.
	Of(k model.Key) (of Object, made bool)
	// Decide returns what to write for a key whose entry in etcd is e, an empty change if it is as desired. The writer
	// compares the key; the change may contain no other. An error concerns this key alone.
	Decide(ctx context.Context, e model.Entry, k model.Key) (model.Change, error)
}

// Reporter is told what happens to keys.
type Reporter interface {
	// Wrote reports a key that is now as desired, and how long that took from when it was known not to be.
	Wrote(of Object, took time.Duration)
	// Failed reports a key that could not be written and is retried later.
	Failed(of Object, k model.Key, err error)
	// Restored reports a key passed to Spoiled that was written again.
	Restored(of Object, k model.Key)
}

// Config configures a Writer. All fields are required.
type Config struct {
	Etcd     Etcd
	Problems *problems.Ledger
	Reporter Reporter
	// What names what is written, for problems.
	What string
}

// Writer writes keys. Make one with New.
type Writer struct {
	Config
	keeper Keeper
	queue  *queue
}

// New returns a writer without keys.
func New(cfg Config, of Keeper) *Writer { return &Writer{cfg, of, newQueue(of.Owner)} }

// Dirty queues keys to be looked at while this process leads. It never waits.
func (w *Writer) Dirty(keys ...model.Key) { w.queue.add(item{since: time.Now()}, keys...) }

// Clean drops keys that are known to be as desired, since another process has written them.
func (w *Writer) Clean(keys ...model.Key) { w.queue.drop(keys...) }

// Spoiled is Dirty for keys that were as desired until another process changed or deleted them.
func (w *Writer) Spoiled(keys ...model.Key) {
	w.queue.add(item{since: time.Now(), spoiled: true}, keys...)
}

// Waiting returns how many keys are queued.
func (w *Writer) Waiting() int { return w.queue.size() }

// Run writes until the context ends.
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
		_ = retry.Wait(ctx, backoff.Next()) // the loop checks the context
	}
}

// write brings keys to their desired state. It reports whether etcd could be reached at all.
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
		w.queue.back(keys, true) // asking about so many takes longer than a transaction may
		return true
	case away(err):
		if !errors.Is(err, fenced.ErrNotLeading) && !errors.Is(err, context.Canceled) {
			w.say(err)
		}
		w.queue.back(keys, false)
		return false
	case len(keys) > 1:
		w.queue.back(keys, true) // one by one, to find the bad one
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

// unanswered reports whether a decision ran out of time.
func unanswered(bad map[model.Key]error) bool {
	for _, err := range bad {
		if errors.Is(err, context.DeadlineExceeded) {
			return true
		}
	}
	return false
}

// away reports whether an error says nothing about the keys: they are retried as soon as etcd can be written.
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

// say records why nothing can be written, or that it can again.
func (w *Writer) say(err error) {
	if errors.Is(err, fenced.ErrNotReady) {
		err = nil // as on every new cluster, for a moment
	}
	w.Problems.Tell(problems.Host, w.What+" in etcd", err)
}
