// SPDX-License-Identifier: Apache-2.0

// Package leftovers deletes the host's empty blocks from which nothing may be allocated any more: their pool is gone, allocates nothing, or
// nothing to this host, or has blocks of another size.
package leftovers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// patience is how long a block must have been a leftover without a break: a pool replaced by a delete and a put is back long before. It is
// also the pause before a block that remains, or couldn't be deleted, is tried again.
const patience = 5 * time.Minute

const requestTimeout = 10 * time.Second

// Blocks are the leftovers of this host. The router notes them without blocking; Run deletes them.
type Blocks struct {
	log   *slog.Logger
	store *store.Client
	host  string
	loop  *reconcile.Loop

	mu  sync.Mutex
	due map[netip.Prefix]time.Time // when to delete each
	now time.Time                  // time of the last Note
}

// New returns Blocks without leftovers.
func New(log *slog.Logger, client *store.Client, host string) *Blocks {
	k := &Blocks{log: log, store: client, host: host}
	k.loop = reconcile.New(reconcile.Timing{}, k.deleteDue)
	return k
}

// Note takes in the complete result of plan.Planner. Call it regularly; while etcd's content isn't known, or the host's name isn't its own,
// with no blocks.
func (k *Blocks) Note(now time.Time, blocks []netip.Prefix) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.due
	k.due, k.now = nil, now
	for _, b := range blocks {
		at, ok := before[b]
		if !ok {
			at = now.Add(patience)
		}
		if k.due == nil {
			k.due = make(map[netip.Prefix]time.Time, len(blocks))
		}
		k.due[b] = at
		if !now.Before(at) {
			k.loop.Wake()
		}
	}
}

// take returns a block that is due now, if there is one.
func (k *Blocks) take() (netip.Prefix, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for b, at := range k.due {
		if !k.now.Before(at) {
			k.due[b] = k.now.Add(patience)
			return b, true
		}
	}
	return netip.Prefix{}, false
}

// Run deletes blocks that are due until the context ends; the error is always nil.
func (k *Blocks) Run(ctx context.Context) error { return k.loop.Run(ctx) }

func (k *Blocks) deleteDue(ctx context.Context) (time.Duration, error) {
	for b, ok := k.take(); ok && ctx.Err() == nil; b, ok = k.take() {
		k.say(ctx, b, k.delete(ctx, b))
	}
	return 0, nil // a block that remains is due again after patience
}

func (k *Blocks) say(ctx context.Context, block netip.Prefix, err error) {
	_, faster := errors.AsType[*store.ConflictError](err)
	switch {
	case err == nil, faster, ctx.Err() != nil: // the faster writer may use it
	default:
		k.log.Warn("a block that nothing may be allocated from could not be deleted, trying again", "block", block, "after", patience, "err", err)
	}
}

// delete deletes a block if etcd's content says that it is a leftover, in one transaction.
func (k *Blocks) delete(ctx context.Context, block netip.Prefix) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ranges := append(ipam.FirstReadGiveBack(block), model.KeyRange(model.ReadyKey{}))
	var deleted bool
	revision, err := k.store.Transact(ctx, ranges, func(v *model.View) (model.Change, error) {
		if deleted = false; v.Get(model.ReadyKey{}).Value != model.Ready(true) {
			return model.Change{}, nil
		}
		p := ipam.NewPlan(v)
		is, err := p.GiveBack(k.host, block)
		if deleted = is; err != nil || !is {
			return model.Change{}, err
		}
		return p.Change(), nil
	})
	if err != nil {
		return fmt.Errorf("delete block %s: %w", block, err)
	}
	if !deleted {
		return nil
	}
	k.log.Info("a block that nothing may be allocated from any more is deleted", "block", block, "revision", revision)
	return nil
}
