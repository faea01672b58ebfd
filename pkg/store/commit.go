// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

// Commit makes a change as a whole or not at all, and returns its revision. If a compare fails, the error is a
// *ConflictError. The request is sent once: if no answer comes, the error wraps ErrUnknownOutcome. An empty change
// without compares does nothing and returns 0.
func (c *Client) Commit(ctx context.Context, change model.Change) (revision int64, err error) {
	read, err := c.overwritten(ctx, change)
	if err != nil {
		return 0, err
	}
	return c.commit(ctx, change, clientv3.NoLease, read)
}

// overwritten reads the values that the change overwrites and compares, because parts of them may have to be kept.
func (c *Client) overwritten(ctx context.Context, change model.Change) (read stored, err error) {
	var ranges []model.Range
	for _, p := range change.Puts {
		if _, text := p.Value.(model.Text); !text && slices.ContainsFunc(change.Compares, func(c model.Compare) bool { return c.Key == p.Key && c.Revision != 0 }) {
			ranges = append(ranges, model.KeyRange(p.Key))
		}
	}
	return c.readInto(ctx, model.NewView(), ranges)
}

// commit makes a change that was decided from what was read.
func (c *Client) commit(ctx context.Context, change model.Change, lease clientv3.LeaseID, read stored) (revision int64, err error) {
	t, err := newTxn(change, lease, read)
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	if change.Empty() && len(t.cmps) == 0 {
		return 0, nil
	}
	var resp *clientv3.TxnResponse
	err = c.call(ctx, request{
		what: commitText(change),
		once: true,
		ops:  slices.Concat(t.writes, t.reads),
		send: func(ctx context.Context, client *clientv3.Client) (err error) {
			resp, err = client.Txn(ctx).If(t.cmps...).Then(t.writes...).Else(t.reads...).Commit()
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
	for i, r := range resp.Responses {
		var have, created int64
		if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
			have, created = kvs[0].ModRevision, kvs[0].CreateRevision
		}
		if n := i - len(t.compares); n >= 0 {
			if since := change.NoneSince[n]; created > since.Revision {
				return 0, fmt.Errorf("%s: %w", commitText(change), &ConflictError{Prefix: since.Prefix, Want: since.Revision, Have: created})
			}
		} else if cmp := t.compares[i]; have != cmp.Revision {
			return 0, fmt.Errorf("%s: %w", commitText(change), &ConflictError{Key: cmp.Key, Want: cmp.Revision, Have: have})
		}
	}
	return 0, fmt.Errorf("%s: etcd refused it although every compare holds: is this an etcd?", commitText(change))
}

func commitText(c model.Change) string {
	more := len(c.Puts) + len(c.Deletes) - 1
	switch {
	case len(c.Puts) > 0:
		return "write " + andMore(c.Puts[0].Key.Path(), more)
	case len(c.Deletes) > 0:
		return "delete " + andMore(c.Deletes[0].Path(), more)
	}
	return "compare keys in etcd"
}

// txn is a change in etcd's form. If a compare fails, the transaction reads the compared keys, to name the conflict.
type txn struct {
	compares      []model.Compare // without repetitions
	cmps          []clientv3.Cmp  // these, then the change's NoneSince
	writes, reads []clientv3.Op
}

func newTxn(change model.Change, lease clientv3.LeaseID, read stored) (txn, error) {
	var t txn
	demanded := make(map[string]int64, len(change.Compares))
	for _, cmp := range change.Compares {
		path := cmp.Key.Path()
		if r, ok := demanded[path]; ok {
			if r != cmp.Revision {
				return t, fmt.Errorf("%s is demanded at revision %d and at %d", path, r, cmp.Revision)
			}
			continue
		}
		demanded[path] = cmp.Revision
		t.compares = append(t.compares, cmp)
		t.cmps = append(t.cmps, clientv3.Compare(clientv3.ModRevision(path), "=", cmp.Revision))
		t.reads = append(t.reads, clientv3.OpGet(path, clientv3.WithKeysOnly()))
	}
	for _, n := range change.NoneSince {
		since := clientv3.Compare(clientv3.CreateRevision(n.Prefix), "<", n.Revision+1)
		t.cmps = append(t.cmps, since.WithRange(clientv3.GetPrefixRangeEnd(n.Prefix)))
		t.reads = append(t.reads, clientv3.OpGet(n.Prefix, append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())...))
	}
	written := make(map[string]string, len(change.Puts)+len(change.Deletes))
	for _, p := range change.Puts {
		path := p.Key.Path()
		if _, ok := written[path]; ok {
			return t, fmt.Errorf("%s is written twice: etcd takes a key once in a transaction", path)
		}
		written[path] = "put"
		data, err := format(p)
		if err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
		if relied := demanded[path]; relied != 0 {
			data = read.keep(p.Key, relied, data)
		}
		t.writes = append(t.writes, clientv3.OpPut(path, string(data), clientv3.WithLease(lease)))
	}
	for _, k := range change.Deletes {
		path := k.Path()
		switch written[path] {
		case "put":
			return t, fmt.Errorf("%s is both written and deleted: etcd takes a key once in a transaction", path)
		case "delete":
			continue
		}
		written[path] = "delete"
		t.writes = append(t.writes, clientv3.OpDelete(path))
	}
	if n := max(len(t.writes), len(t.cmps)); n > maxOps {
		return t, fmt.Errorf("%d operations and %d compares: etcd takes at most %d of each in one transaction",
			len(t.writes), len(t.cmps), maxOps)
	}
	return t, nil
}

// format formats a value and checks that it parses back as the type that belongs to the key, so that a mistake of a
// caller never reaches etcd.
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
