// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store/wire"
)

// CommitOption changes how a commit is made.
type CommitOption func(*commitOptions)

type commitOptions struct {
	lease  int64
	orRead []ipam.Want
	found  *model.Snapshot
}

// WithLease binds the puts to the lease: etcd deletes their keys when it ends.
func WithLease(l *Lease) CommitOption {
	return func(o *commitOptions) { o.lease = l.id }
}

// OrRead has a commit that conflicts read what is wanted, at the revision at which it does: found is as of Read. What has a
// condition isn't for it, and where it is more than etcd takes in the same transaction found stays empty.
func OrRead(wants []ipam.Want, found *model.Snapshot) CommitOption {
	return func(o *commitOptions) { o.orRead, o.found = wants, found }
}

// Commit makes a change, all of it or nothing, and returns its revision. Where a
// compare fails the error is a *ConflictError. The request is sent once: where
// no answer came, ErrUnknownOutcome is in the error's chain. An empty change
// without compares does nothing and returns 0.
func (c *Client) Commit(ctx context.Context, change model.Change, opts ...CommitOption) (revision int64, err error) {
	var o commitOptions
	for _, opt := range opts {
		opt(&o)
	}
	txn, compares, err := transaction(change, o.lease)
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	if change.Empty() && len(compares) == 0 {
		return 0, nil
	}
	orRead := ranges(o.orRead)
	if len(compares)+len(orRead) > maxOps {
		orRead = nil
	}
	for _, r := range orRead {
		req, err := r.request()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", commitText(change), err)
		}
		txn.Failure = append(txn.Failure, wire.Op{Range: req})
	}
	var resp *wire.TxnResponse
	err = c.call(ctx, request{
		what: commitText(change),
		once: true,
		ops:  slices.Concat(txn.Success, txn.Failure),
		send: func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) error {
			var err error
			resp, err = wire.Txn(ctx, conn, txn, opts...)
			return err
		}})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = fmt.Errorf("%w: %w", ErrLeaseEnded, err)
	}
	if err != nil {
		return 0, err
	}
	if resp.Succeeded {
		c.commits.Add(1)
		return resp.Header.Revision, nil
	}
	c.conflicts.Add(1)
	if len(orRead) > 0 && len(resp.Responses) == len(txn.Failure) {
		*o.found = model.Snapshot{Revision: resp.Header.Revision}
		for i, r := range orRead {
			o.found.Ranges = append(o.found.Ranges, c.entries(r, resp.Responses[len(compares)+i].Range.Kvs))
		}
	}
	for i, cmp := range compares {
		if i >= len(resp.Responses) {
			break
		}
		var have int64
		if kvs := resp.Responses[i].Range.Kvs; len(kvs) > 0 {
			have = kvs[0].ModRevision
		}
		if have != cmp.Revision {
			return 0, fmt.Errorf("%s: %w", commitText(change), &ConflictError{Key: cmp.Key, Want: cmp.Revision, Have: have})
		}
	}
	return 0, fmt.Errorf("%s: etcd refused it although every compare holds: is this an etcd?", commitText(change))
}

func commitText(c model.Change) string {
	switch {
	case len(c.Puts) == 1 && len(c.Deletes) == 0:
		return "write " + c.Puts[0].Key.Path()
	case len(c.Puts) == 0 && len(c.Deletes) == 1:
		return "delete " + c.Deletes[0].Path()
	}
	return fmt.Sprintf("commit of %d puts and %d deletes", len(c.Puts), len(c.Deletes))
}

// transaction renders a change. The Else branch reads what was compared, so
// that a conflict can be named. It returns the compares without repetitions.
func transaction(change model.Change, lease int64) (*wire.TxnRequest, []model.Compare, error) {
	txn := &wire.TxnRequest{}
	var compares []model.Compare
	demanded := make(map[string]int64, len(change.Compares))
	for _, cmp := range change.Compares {
		path := cmp.Key.Path()
		if r, ok := demanded[path]; ok {
			if r != cmp.Revision {
				return nil, nil, fmt.Errorf("%s is demanded at revision %d and at %d", path, r, cmp.Revision)
			}
			continue
		}
		demanded[path] = cmp.Revision
		compares = append(compares, cmp)
		txn.Compare = append(txn.Compare, wire.Compare{Key: path, ModRevision: cmp.Revision})
		txn.Failure = append(txn.Failure, wire.Op{Range: &wire.RangeRequest{Key: path, KeysOnly: true}})
	}
	written := make(map[string]string, len(change.Puts)+len(change.Deletes))
	for _, p := range change.Puts {
		path := p.Key.Path()
		if _, ok := written[path]; ok {
			return nil, nil, fmt.Errorf("%s is written twice: etcd takes a key once in a transaction", path)
		}
		written[path] = "put"
		data, err := format(p)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		txn.Success = append(txn.Success, wire.Op{Put: &wire.PutRequest{Key: path, Value: data, Lease: lease}})
	}
	for _, k := range change.Deletes {
		path := k.Path()
		switch written[path] {
		case "put":
			return nil, nil, fmt.Errorf("%s is both written and deleted: etcd takes a key once in a transaction", path)
		case "delete":
			continue
		}
		written[path] = "delete"
		txn.Success = append(txn.Success, wire.Op{Delete: &wire.DeleteRequest{Key: path}})
	}
	if n := max(len(txn.Success), len(txn.Compare)); n > maxOps {
		return nil, nil, fmt.Errorf("%d operations and %d compares: etcd takes at most %d of each in one transaction",
			len(txn.Success), len(txn.Compare), maxOps)
	}
	return txn, compares, nil
}

// format writes a value and makes sure that it is read back as the type that
// the key names, so that a mistake of a caller never reaches etcd.
func format(p model.Put) ([]byte, error) {
	data, err := model.FormatValue(p.Value)
	if err != nil {
		return nil, err
	}
	back, err := model.ParseValue(p.Key, data)
	if err != nil {
		return nil, fmt.Errorf("the value would not read back: %w", err)
	}
	if have, want := reflect.TypeOf(p.Value), reflect.TypeOf(back); have != want {
		return nil, fmt.Errorf("a value of type %v does not belong there, want %v", have, want)
	}
	return data, nil
}
