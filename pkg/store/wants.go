// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/ipam"
)

// ReadWants reads what address management wants. More than etcd takes in one transaction is several that are
// under way at the same time, each of a revision of its own: the snapshot's is the lowest. A decision
// compares whatever it relies on.
func (c *Client) ReadWants(ctx context.Context, wants []ipam.Want) (Snapshot, error) {
	all := ranges(wants)
	if len(all) <= maxOps {
		return c.Read(ctx, all...)
	}
	parts := slices.Collect(slices.Chunk(all, maxOps))
	pages, errs := make([]page, len(parts)), make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() { pages[i], errs[i] = c.readAt(ctx, readOptions{alongside: i > 0}, part) })
	}
	wg.Wait()
	whole := pages[0].Snapshot
	for i, p := range pages {
		if errs[i] != nil {
			return Snapshot{}, errs[i]
		}
		if i > 0 {
			whole.Revision = min(whole.Revision, p.Revision)
			whole.Ranges = append(whole.Ranges, p.Ranges...)
		}
	}
	return whole, nil
}

func ranges(wants []ipam.Want) []Range {
	ranges := make([]Range, len(wants))
	for i, w := range wants {
		if w.Key != nil {
			ranges[i] = Key(w.Key)
			continue
		}
		r := Prefix(w.Prefix).Limit(w.Limit)
		if w.From != "" {
			r = r.From(w.From)
		}
		if w.KeysOnly {
			r = r.KeysOnly()
		}
		ranges[i] = r
	}
	return ranges
}

// Pause waits before another attempt at a change that conflicted: a random time,
// longer after each.
func Pause(ctx context.Context, attempt int) error {
	limit := min(time.Millisecond<<min(attempt, 10), 100*time.Millisecond)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(limit)):
		return nil
	}
}
