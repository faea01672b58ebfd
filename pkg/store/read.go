// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store/wire"
)

// maxOps is how many operations etcd takes in one transaction (--max-txn-ops).
const maxOps = 128

// bounded is a range of which those entries only are read whose values come before a text in the order of bytes, in that
// order: a limit leaves the first ones; "": all.
type bounded struct {
	model.Range
	before string
}

func unbounded(ranges []model.Range) []bounded {
	all := make([]bounded, len(ranges))
	for i, r := range ranges {
		all[i].Range = r
	}
	return all
}

func (r bounded) request() (*wire.RangeRequest, error) {
	req := &wire.RangeRequest{Key: r.Path(), Limit: r.Limit, KeysOnly: r.KeysOnly, ByValue: r.before != ""}
	if req.Key == "" {
		return nil, fmt.Errorf("an empty key or prefix names the whole of etcd: name a part of it, such as %s", model.Root)
	}
	if r.Key == nil {
		req.RangeEnd = prefixEnd(r.Prefix)
		req.Key = max(req.Key, r.From)
	}
	return req, nil
}

// prefixEnd is the first key after all that begin with prefix.
func prefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return "\x00" // to the end of the key space
}

// Read reads several ranges at one revision in one round trip. It sees every
// write that was acknowledged before it began (etcd's linearizable read). A
// value that does not parse is an entry with Err.
func (c *Client) Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error) {
	p, err := c.readAt(ctx, readOptions{}, unbounded(ranges))
	return p.Snapshot, err
}

// page is a snapshot and what else the answer said. Where nothing was read it has no ranges.
type page struct {
	model.Snapshot
	cluster uint64
	more    []bool // per range: the limit cut it short
}

type readOptions struct {
	revision  int64          // 0 = the latest
	alongside bool           // another request is under way: together they are one round trip
	condition []wire.Compare // where one doesn't hold, nothing is read
}

// readAt reads several ranges at one revision.
func (c *Client) readAt(ctx context.Context, o readOptions, ranges []bounded) (page, error) {
	what := readText(ranges)
	if len(ranges) > maxOps {
		return page{}, fmt.Errorf("%s: etcd takes at most %d in one transaction: read in several rounds", what, maxOps)
	}
	if len(ranges) == 0 {
		return page{}, nil
	}
	txn := &wire.TxnRequest{Compare: o.condition, Success: make([]wire.Op, len(ranges))}
	for i, r := range ranges {
		req, err := r.request()
		if err != nil {
			return page{}, fmt.Errorf("%s: %w", what, err)
		}
		req.Revision = o.revision
		txn.Success[i].Range = req
	}
	var resp *wire.TxnResponse
	err := c.call(ctx, request{what: what, alongside: o.alongside, ops: txn.Success, send: func(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) error {
		var err error
		resp, err = wire.Txn(ctx, conn, txn, opts...)
		return err
	}})
	if err != nil {
		return page{}, err
	}
	if !resp.Succeeded && len(o.condition) > 0 {
		return page{Snapshot: model.Snapshot{Revision: resp.Header.Revision}}, nil
	}
	if len(resp.Responses) != len(ranges) {
		return page{}, fmt.Errorf("%s: etcd answered %d: is this an etcd?", what, len(resp.Responses))
	}
	p := page{
		Snapshot: model.Snapshot{Revision: resp.Header.Revision, Ranges: make([][]model.Entry, len(ranges))},
		cluster:  resp.Header.ClusterID,
		more:     make([]bool, len(ranges)),
	}
	for i, r := range resp.Responses {
		p.Ranges[i], p.more[i] = c.entries(ranges[i], r.Range.Kvs), r.Range.More
	}
	return p, nil
}

func readText(ranges []bounded) string {
	if len(ranges) == 1 {
		return "read " + strings.TrimSuffix(ranges[0].Path(), "/")
	}
	return fmt.Sprintf("read %d ranges", len(ranges))
}

// entries parses what etcd holds in a range.
func (c *Client) entries(r bounded, kvs []wire.KeyValue) []model.Entry {
	entries := make([]model.Entry, 0, len(kvs))
	for _, kv := range kvs {
		if e := c.entry(kv, r.KeysOnly); r.before == "" || string(kv.Value) < r.before {
			entries = append(entries, e)
		}
	}
	return entries
}

// entry parses what etcd holds.
func (c *Client) entry(kv wire.KeyValue, keyOnly bool) model.Entry {
	c.bytesRead.Add(int64(len(kv.Key) + len(kv.Value)))
	e := model.Entry{Path: kv.Key, Revision: kv.ModRevision, Created: kv.CreateRevision, Lease: kv.Lease}
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
