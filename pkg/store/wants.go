// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/calico-go/calico/pkg/ipam"
)

// Ranges are what address management wants to be read.
func Ranges(wants []ipam.Want) []Range {
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
