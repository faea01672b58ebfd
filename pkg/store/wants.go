// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
)

// ReadWants reads what address management wants, but for what has a condition. Use Transact instead.
func (c *Client) ReadWants(ctx context.Context, wants []ipam.Want) (model.Snapshot, []ipam.Want, error) {
	wants = slices.DeleteFunc(slices.Clone(wants), func(w ipam.Want) bool { return w.If != nil })
	var whole model.Snapshot
	for chunk := range slices.Chunk(wants, maxOps) {
		var ranges []model.Range
		for _, w := range chunk {
			ranges = append(ranges, model.Range{Key: w.Key, Prefix: w.Prefix, From: w.From, Limit: w.Limit, KeysOnly: w.KeysOnly})
		}
		p, err := c.readAt(ctx, whole.Revision, ranges)
		if err != nil {
			return model.Snapshot{}, nil, err
		}
		if whole.Revision == 0 {
			whole.Revision = p.Revision
		}
		whole.Ranges = append(whole.Ranges, p.Ranges...)
	}
	return whole, wants, nil
}

// Pause waits before another attempt. Use Transact instead.
func Pause(ctx context.Context, attempt int) error { return pauseBeforeRetry(ctx, attempt) }
