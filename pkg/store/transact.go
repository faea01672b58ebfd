// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
)

// maxRounds bounds how often one decision may ask for more ranges.
const maxRounds = 1000

// TransactOption changes how a transaction is made.
type TransactOption func(*hooks)

type hooks struct {
	lease   clientv3.LeaseID
	before  func(*model.View) error
	unknown func(context.Context, model.Change) error
	would   *[]model.Change
}

// UnderLease ties the written keys to the lease: etcd deletes them when it ends.
func UnderLease(l *Lease) TransactOption {
	return func(t *hooks) { t.lease = l.id }
}

// BeforeCommit makes Transact call fn each time a change, even an empty one, is decided, before it is committed. An
// error from fn ends the transaction.
func BeforeCommit(fn func(*model.View) error) TransactOption {
	return func(t *hooks) { t.before = fn }
}

// AfterUnknown makes Transact call fn if no answer to a commit came, even if the context has ended. If fn returns nil,
// the change either took effect or never will, and the transaction reads and decides again. Otherwise, or without this
// option, the transaction ends with an error that wraps ErrUnknownOutcome.
func AfterUnknown(fn func(context.Context, model.Change) error) TransactOption {
	return func(t *hooks) { t.unknown = fn }
}

// DryRun makes Transact append the change to would, unless it is empty, instead of committing it.
func DryRun(would *[]model.Change) TransactOption {
	return func(t *hooks) { t.would = would }
}

// Transact changes etcd according to a decision on its content. It reads the ranges in wants at one revision, calls
// decide, and commits the change, whose compares must cover everything that the decision relies on. If decide returns a
// *model.NeedRangesError, Transact reads those ranges at the same revision and calls decide again; any other error ends
// the transaction. If another writer was faster, it starts again with a new view, until the context ends, so decide
// must have no side effects. Transact returns the revision of the commit, or that of the view if the change is empty.
func (c *Client) Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...TransactOption) (revision int64, err error) {
	var t hooks
	for _, opt := range opts {
		opt(&t)
	}
	for attempt := 0; ; attempt++ {
		view := model.NewView()
		change, revision, err := c.decideAndCommit(ctx, view, wants, decide, t)
		if err == nil {
			return revision, nil
		}
		_, conflict := errors.AsType[*ConflictError](err)
		switch {
		case conflict, errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		case errors.Is(err, ErrUnknownOutcome) && t.unknown != nil:
			if t.unknown(ctx, change) != nil || ctx.Err() != nil {
				return 0, err
			}
		default:
			return 0, err
		}
		if pauseErr := pauseBeforeRetry(ctx, attempt); pauseErr != nil {
			return 0, errors.Join(pauseErr, err)
		}
		if len(view.Ranges()) <= maxOps {
			wants = wholeRanges(view) // the same ranges are probably needed again: read them in one round trip
		}
	}
}

// decideAndCommit reads, decides and commits once.
func (c *Client) decideAndCommit(ctx context.Context, view *model.View, wants []model.Range, decide func(*model.View) (model.Change, error), t hooks) (model.Change, int64, error) {
	var read stored
	for range maxRounds {
		kvs, err := c.readInto(ctx, view, wants)
		if err != nil {
			return model.Change{}, 0, err
		}
		read = append(read, kvs...)
		change, err := decide(view)
		if need, more := errors.AsType[*model.NeedRangesError](err); more {
			wants = need.Ranges
			continue
		}
		if err == nil && t.before != nil {
			err = t.before(view)
		}
		if err != nil || change.Empty() {
			return change, view.Revision(), err
		}
		if t.would != nil {
			*t.would = append(*t.would, change)
			return change, view.Revision(), nil
		}
		revision, err := c.commit(ctx, change, t.lease, read)
		return change, revision, err
	}
	return model.Change{}, 0, fmt.Errorf("%d rounds of reading did not suffice for a decision", maxRounds)
}

// readInto adds the ranges to the view, at its revision.
func (c *Client) readInto(ctx context.Context, view *model.View, ranges []model.Range) (read stored, err error) {
	for chunk := range slices.Chunk(ranges, maxOps) {
		p, err := c.readAt(ctx, view.Revision(), chunk)
		if err != nil {
			return nil, err
		}
		read = append(read, p.kvs...)
		revision := view.Revision()
		if revision == 0 {
			revision = p.Revision
		}
		for i, entries := range p.Ranges {
			view.Add(chunk[i], revision, entries)
		}
	}
	return read, nil
}

// stored is what a decision was based on, as stored in etcd.
type stored [][]*mvccpb.KeyValue

// keep returns the value to write for a key that the change compares with revision relied: see model.Keep.
func (s stored) keep(k model.Key, relied int64, written []byte) []byte {
	path := []byte(k.Path())
	for _, kvs := range s {
		for _, kv := range kvs {
			if kv.ModRevision == relied && bytes.Equal(kv.Key, path) && len(kv.Value) > 0 {
				return model.Keep(k, kv.Value, written)
			}
		}
	}
	return written
}

// wholeRanges returns the ranges of a view without the later pages of a prefix, which may begin elsewhere by now.
func wholeRanges(view *model.View) []model.Range {
	return slices.DeleteFunc(slices.Clone(view.Ranges()), func(r model.Range) bool { return r.From != "" })
}

// pauseBeforeRetry waits for a random time before retrying a conflicting change. The time grows with each attempt.
func pauseBeforeRetry(ctx context.Context, attempt int) error {
	return retry.Wait(ctx, rand.N(min(time.Millisecond<<min(attempt, 10), 100*time.Millisecond)))
}
