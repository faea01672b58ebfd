// SPDX-License-Identifier: Apache-2.0

// Package fenced restricts writes to etcd to the leader of the controllers: every change compares the leader's key, so that a
// process that has lost the lead without knowing it writes nothing.
package fenced

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/pkg/store"
)

var (
	// ErrNotLeading is in the chain of an error when another process leads, or none does.
	ErrNotLeading = errors.New("this process does not lead the controllers")
	// ErrNotReady is in the chain when etcd must not be written: it isn't prepared yet, or its data is being moved elsewhere.
	ErrNotReady = fmt.Errorf("%s is not true in etcd", model.ReadyKey{}.Path())
)

// leaseTime is how long etcd still names a leader after its death. Its successor needn't wait for that.
const leaseTime = 30 * time.Second

// patience is how long a process tries to write that it leads.
const patience = 15 * time.Second

// Store lets the leader write to etcd. Make one with New.
type Store struct {
	// Patience is how long Lead tries to begin; 0 = 15 s.
	Patience time.Duration

	client *store.Client
	log    *slog.Logger

	mu    sync.Mutex
	fence int64         // revision at which this process wrote that it leads; 0 = it doesn't
	lost  chan struct{} // closed when the fence turned out to be another's
}

// New returns a store that doesn't lead.
func New(client *store.Client, log *slog.Logger) *Store { return &Store{client: client, log: log} }

// Read reads several ranges at one revision, whether or not this process leads.
func (s *Store) Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error) {
	return s.client.Read(ctx, ranges...)
}

// Watch is store.Client's Watch, whether or not this process leads.
func (s *Store) Watch(ctx context.Context, prefixes []string, fn func(model.Update) error) error {
	return s.client.Watch(ctx, prefixes, fn)
}

// Transact is store.Client's Transact if this process leads and etcd is ready; else the error is ErrNotLeading or
// ErrNotReady.
func (s *Store) Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...store.TransactOption) (revision int64, err error) {
	s.mu.Lock()
	fence, lost := s.fence, s.lost
	s.mu.Unlock()
	if fence == 0 {
		return 0, ErrNotLeading
	}
	wants = append([]model.Range{model.KeyRange(model.LeaderKey{}), model.KeyRange(model.ReadyKey{})}, wants...)
	revision, err = s.client.Transact(ctx, wants, func(v *model.View) (model.Change, error) {
		if v.Get(model.LeaderKey{}).Revision != fence {
			return model.Change{}, ErrNotLeading
		}
		if v.Get(model.ReadyKey{}).Value != model.Ready(true) {
			return model.Change{}, ErrNotReady
		}
		change, err := decide(v)
		if err == nil && !change.Empty() {
			change.Compares = append(change.Compares, v.Compare(model.LeaderKey{}))
		}
		return change, err
	}, opts...)
	if errors.Is(err, ErrNotLeading) {
		s.leave(fence, lost)
	}
	return revision, err
}

// leave records that this process has lost the fence.
func (s *Store) leave(fence int64, lost chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fence == fence {
		s.fence = 0
		close(lost)
	}
}

// Lead leads until the context ends. holds asks the API whether this process should lead. Of several processes that think so
// only one succeeds, because each asks after it has read the leader's key and before it writes it. Lead calls work with a
// context that ends when another process leads or the leader's key in etcd expires; it then calls work again if this process
// should still lead. Lead returns before the context ends if it can't write the leader's key within Patience: another process
// may be able to.
func (s *Store) Lead(ctx context.Context, identity string, holds func(context.Context) error, work func(context.Context)) {
	told, since := "", time.Now()
	for ctx.Err() == nil {
		lease, lost, err := s.take(ctx, identity, holds)
		if err != nil {
			if text := err.Error(); text != told && ctx.Err() == nil {
				s.log.Warn("can't lead yet, trying again", "err", err)
				told = text
			}
			if time.Since(since) > cmp.Or(s.Patience, patience) {
				s.log.Warn("can't lead: another may", "err", err)
				return
			}
			_ = retry.Wait(ctx, time.Second)
			continue
		}
		s.log.Info("this process leads the controllers", "identity", identity)
		s.work(ctx, lease, lost, work)
		if err := lease.Close(); err != nil {
			s.log.Debug("etcd still names this process as the leader", "err", err)
		}
		told, since = "", time.Now()
	}
}

func (s *Store) work(ctx context.Context, lease *store.Lease, lost chan struct{}, work func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	select {
	case <-lost:
		s.log.Warn("another process leads the controllers")
	case <-lease.Lost():
		s.log.Warn("etcd has not heard of this process for long: it takes the lead again if it may")
	case <-ctx.Done():
	case <-done: // work is done
	}
	cancel()
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence = 0
}

// take writes to etcd that this process leads.
func (s *Store) take(ctx context.Context, identity string, holds func(context.Context) error) (*store.Lease, chan struct{}, error) {
	lease, err := s.client.Lease(ctx, leaseTime)
	if err != nil {
		return nil, nil, fmt.Errorf("take the lead: %w", err)
	}
	key := model.LeaderKey{}
	revision, err := s.client.Transact(ctx, []model.Range{model.KeyRange(key)}, func(v *model.View) (model.Change, error) {
		if err := holds(ctx); err != nil {
			return model.Change{}, err
		}
		return model.Change{Compares: []model.Compare{v.Compare(key)}, Puts: []model.Put{{Key: key, Value: model.Text(identity)}}}, nil
	}, store.UnderLease(lease))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("take the lead: %w", err), lease.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence, s.lost = revision, make(chan struct{})
	return lease, s.lost, nil
}
