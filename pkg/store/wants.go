// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"sync"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store/wire"
)

// ReadWants reads what address management wants, but for that of which the condition doesn't hold. It returns the wants
// that were read, in the order of the snapshot's ranges. What has a condition, and more than etcd takes in one transaction, is several that are
// under way at the same time, each of a revision of its own: the snapshot's is the lowest. A decision
// compares whatever it relies on.
func (c *Client) ReadWants(ctx context.Context, wants []ipam.Want) (model.Snapshot, []ipam.Want, error) {
	parts := transactions(wants)
	if len(parts) == 0 {
		return model.Snapshot{}, nil, nil
	}
	pages, errs := make([]page, len(parts)), make([]error, len(parts))
	read := func(which []int) {
		var wg sync.WaitGroup
		for n, i := range which {
			wg.Go(func() {
				o := readOptions{alongside: n > 0}
				if cond := parts[i][0].If; cond != nil {
					o.condition = compares(cond)
				}
				pages[i], errs[i] = c.readAt(ctx, o, ranges(parts[i]))
			})
		}
		wg.Wait()
	}
	all, again := []int(nil), []int(nil)
	for i := range parts {
		all = append(all, i)
	}
	read(all)
	// Of what size blocks can be is judged by the pools, and so which there are is read not before these were written.
	var pools int64
	if at := slices.IndexFunc(parts[0], func(w ipam.Want) bool { return w.Prefix == model.PoolPrefix() }); at >= 0 && pages[0].Ranges != nil {
		for _, e := range pages[0].Ranges[at] {
			pools = max(pools, e.Revision)
		}
	}
	for i := range parts {
		if pages[i].Ranges != nil && pages[i].Revision < pools {
			again = append(again, i)
		}
	}
	read(again)
	whole, known := model.Snapshot{Revision: pages[0].Revision}, []ipam.Want(nil)
	for i := range parts {
		if errs[i] != nil {
			return model.Snapshot{}, nil, errs[i]
		}
		whole.Revision = min(whole.Revision, pages[i].Revision)
		if pages[i].Ranges != nil {
			whole.Ranges = append(whole.Ranges, pages[i].Ranges...)
			known = append(known, parts[i]...)
		}
	}
	return whole, known, nil
}

// transactions are the wants by what is read together.
func transactions(wants []ipam.Want) [][]ipam.Want {
	var conditions []*ipam.Condition
	of := map[*ipam.Condition][]ipam.Want{}
	for _, w := range wants {
		if len(of[w.If]) == 0 {
			conditions = append(conditions, w.If)
		}
		of[w.If] = append(of[w.If], w)
	}
	var parts [][]ipam.Want
	for _, c := range conditions {
		parts = slices.AppendSeq(parts, slices.Chunk(of[c], maxOps))
	}
	return parts
}

func compares(c *ipam.Condition) []wire.Compare {
	var all []wire.Compare
	for _, prefix := range c.Exist {
		all = append(all, wire.Compare{Key: prefix, RangeEnd: prefixEnd(prefix), Later: true})
	}
	for _, prefix := range c.Full {
		all = append(all, wire.Compare{Key: prefix, RangeEnd: prefixEnd(prefix), After: model.FullBlock})
	}
	return all
}

func ranges(wants []ipam.Want) []bounded {
	ranges := make([]bounded, len(wants))
	for i, w := range wants {
		ranges[i] = bounded{model.Range{Key: w.Key, Prefix: w.Prefix, From: w.From, Limit: w.Limit, KeysOnly: w.KeysOnly}, w.Before}
	}
	return ranges
}

// Pause waits before another attempt at a change that conflicted: a random time,
// longer after each.
func Pause(ctx context.Context, attempt int) error { return pauseBeforeRetry(ctx, attempt) }
