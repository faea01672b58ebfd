// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"

	"github.com/calico-go/calico/pkg/nft/nfnl"
)

// Counter is what one rule has counted.
type Counter = nfnl.Counter

// Counters reads what the rules of a chain have counted, "" = of all chains, in
// order. Rules that don't count are left out.
func (f *Firewall) Counters(ctx context.Context, chain string) ([]Counter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, err := f.conn.ReadCounters(chain)
		if !errors.Is(err, nfnl.ErrInterrupted) {
			return out, err
		}
	}
}
