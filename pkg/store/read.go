// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

// maxOps is the maximum number of operations in one etcd transaction (--max-txn-ops).
const maxOps = 128

// operation returns the request for a range at a revision, 0 for the latest.
func operation(r model.Range, revision int64) (clientv3.Op, error) {
	if r.Path() == "" {
		return clientv3.Op{}, fmt.Errorf("an empty key or prefix names the whole of etcd: name a part of it, such as %s", model.Root)
	}
	opts := []clientv3.OpOption{clientv3.WithRev(revision), clientv3.WithLimit(r.Limit)}
	if r.KeysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	if r.Key == nil {
		opts = append(opts, clientv3.WithRange(clientv3.GetPrefixRangeEnd(r.Prefix)))
	}
	return clientv3.OpGet(max(r.Path(), r.From), opts...), nil
}

// Read reads several ranges at one revision in one round trip. It sees every write that was acknowledged before Read
// began (etcd's linearizable read). A value that does not parse becomes an entry with Err.
func (c *Client) Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error) {
	p, err := c.readAt(ctx, 0, ranges)
	return p.Snapshot, err
}

// page is a snapshot with further details of the answer.
type page struct {
	model.Snapshot
	cluster uint64
	more    []bool // per range: the limit cut it short
	kvs     [][]*mvccpb.KeyValue
}

// readAt reads several ranges at a revision, 0 for the latest.
func (c *Client) readAt(ctx context.Context, revision int64, ranges []model.Range) (page, error) {
	if len(ranges) == 0 {
		return page{}, nil
	}
	what := readText(ranges)
	if len(ranges) > maxOps {
		return page{}, fmt.Errorf("%s: etcd takes at most %d in one transaction: read in several rounds", what, maxOps)
	}
	ops := make([]clientv3.Op, len(ranges))
	for i, r := range ranges {
		var err error
		if ops[i], err = operation(r, revision); err != nil {
			return page{}, fmt.Errorf("%s: %w", what, err)
		}
	}
	var resp *clientv3.TxnResponse
	err := c.call(ctx, request{what: what, ops: ops, send: func(ctx context.Context, client *clientv3.Client) (err error) {
		resp, err = client.Txn(ctx).Then(ops...).Commit()
		return err
	}})
	if err != nil {
		return page{}, err
	}
	if len(resp.Responses) != len(ranges) {
		return page{}, fmt.Errorf("%s: etcd answered %d: is this an etcd?", what, len(resp.Responses))
	}
	p := page{
		Snapshot: model.Snapshot{Revision: resp.Header.Revision, Ranges: make([][]model.Entry, len(ranges))},
		cluster:  resp.Header.ClusterId,
		more:     make([]bool, len(ranges)),
	}
	for i, r := range resp.Responses {
		found := r.GetResponseRange()
		p.more[i] = found.More
		p.kvs = append(p.kvs, found.Kvs)
		for _, kv := range found.Kvs {
			p.Ranges[i] = append(p.Ranges[i], c.entry(kv, ranges[i].KeysOnly))
		}
	}
	return p, nil
}

func readText(ranges []model.Range) string {
	return "read " + andMore(strings.TrimSuffix(ranges[0].Path(), "/"), len(ranges)-1)
}

// andMore returns path, followed by the number of further ones if any.
func andMore(path string, more int) string {
	if more == 0 {
		return path
	}
	return fmt.Sprintf("%s and %d more", path, more)
}

// entry parses a key and its value.
func (c *Client) entry(kv *mvccpb.KeyValue, keyOnly bool) model.Entry {
	c.bytesRead.Add(int64(len(kv.Key) + len(kv.Value)))
	e := model.Entry{Path: string(kv.Key), Revision: kv.ModRevision, Created: kv.CreateRevision, Lease: kv.Lease}
	e.Key, e.Err = model.ParseKey(e.Path)
	if e.Err != nil {
		e.Key = nil
		return e
	}
	if keyOnly {
		return e
	}
	if e.Value, e.Err = model.ParseValue(e.Key, kv.Value); e.Err != nil {
		e.Value = nil
	}
	e.Unknown = model.UnknownFields(e.Key, kv.Value)
	return e
}
