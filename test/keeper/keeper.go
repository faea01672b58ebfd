// SPDX-License-Identifier: Apache-2.0

// Package keeper runs what follows etcd and writes to it: the keepers of package controllers.
package keeper

import (
	"context"
	"maps"
	"sync"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// Keeper is what runs.
type Keeper interface {
	Writer() *writer.Writer
	Update(u model.Update)
}

// Running is a keeper that runs.
type Running struct {
	etcd     *etcd.Server
	keeper   Keeper
	prefixes []string
	end      func()

	mu   sync.Mutex
	seen map[string]int64 // the keys that the keeper knows of, with their revisions
}

// Run has a keeper write, and hear of what is below the prefixes, until Stop or the end of the test.
func Run(s *etcd.Server, k Keeper, prefixes ...string) *Running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Running{etcd: s, keeper: k, prefixes: prefixes}
	var done sync.WaitGroup
	r.end = func() { cancel(); done.Wait() }
	done.Go(func() { k.Writer().Run(ctx) })
	done.Go(func() {
		_ = s.Store.Watch(ctx, prefixes, func(u model.Update) error {
			k.Update(u)
			r.take(u)
			return nil
		})
	})
	s.Cleanup(r.Stop)
	return r
}

// Stop ends it.
func (r *Running) Stop() { r.end() }

func (r *Running) take(u model.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.Resync {
		r.seen = map[string]int64{}
	}
	for _, e := range u.Entries {
		if r.seen[e.Path] = e.Revision; !e.Exists() {
			delete(r.seen, e.Path)
		}
	}
}

// Settle waits until the keeper knows what etcd holds and has nothing to write. What somebody else changes before, it may take
// for what was there before its own change.
func (r *Running) Settle() {
	r.etcd.Helper()
	var ranges []model.Range
	for _, p := range r.prefixes {
		ranges = append(ranges, model.PrefixRange(p))
	}
	r.etcd.Until("the keeper knows what etcd holds, and has written", func() bool {
		snapshot, err := r.etcd.Store.Read(context.Background(), ranges...)
		if err != nil {
			return false
		}
		has := map[string]int64{}
		for _, e := range snapshot.Entries() {
			has[e.Path] = e.Revision
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.seen != nil && maps.Equal(has, r.seen) && r.keeper.Writer().Waiting() == 0
	})
}
