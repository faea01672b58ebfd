// SPDX-License-Identifier: Apache-2.0

// Package addresses does the plugins' work in etcd: it assigns and releases addresses, in one transaction with the
// endpoint that has them.
package addresses

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// Store is etcd as used by one call of a plugin.
type Store struct {
	Conf    *netconf.Config
	Command string // CNI_COMMAND
	Node    string
	Guessed bool // Node is the system's host name, because the file with the node's name is missing
	RunDir  string
	Log     *slog.Logger
	Now     time.Time

	client *store.Client
	lost   []model.Change // commits whose answer was lost
}

// open prepares the client. It sends nothing.
func (s *Store) open(ctx context.Context) error {
	if s.client != nil {
		return nil
	}
	e := s.Conf.Etcd
	client, err := store.Open(ctx, store.Config{
		Endpoints: e.Endpoints, DiscoverySRV: e.DiscoverySRV,
		CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
		Username: e.Username, PasswordFile: e.PasswordFile, Logger: s.Log,
		TokenDir: filepath.Join(s.RunDir, "etcd-tokens"),
		// Long enough for a restart of etcd. After that, report the failure to the runtime, which retries.
		RefusedTimeout: s.Conf.DatastoreTimeout / 4,
	})
	if err != nil {
		if errors.Is(err, store.ErrAuth) || ctx.Err() != nil {
			return err
		}
		return protocol.Fail(protocol.CodeConfig, err, "correct the etcd settings of the network configuration")
	}
	s.client = client
	return nil
}

// Close ends the connection and returns its cost as log attributes.
func (s *Store) Close() []any {
	if s.client == nil {
		return nil
	}
	n := s.client.Counters()
	_ = s.client.Close() // nothing is in flight any more
	return []any{"round_trips", n.RoundTrips, "bytes_read", n.BytesRead, "conflicts", n.Conflicts}
}

// decide makes a change from what was read. It has no side effects.
type decide func(*model.View) (model.Change, error)

// Transact is like store.Client.Transact. before runs once a change is decided, before it is committed.
func (s *Store) Transact(ctx context.Context, ranges []model.Range, decide decide, before func(*model.View) error) (int64, error) {
	if err := s.open(ctx); err != nil {
		return 0, err
	}
	var read *model.View
	defer func() { s.warnInvalid(read) }()
	revision, err := s.client.Transact(ctx, ranges,
		func(v *model.View) (model.Change, error) {
			read = v
			return decide(v)
		},
		store.BeforeCommit(func(v *model.View) error {
			killpoint.Step("decided")
			if before != nil {
				if err := before(v); err != nil {
					return err
				}
			}
			killpoint.Step("before commit")
			return nil
		}),
		// What the commit writes depends on keys that the next attempt writes too: if it took effect, the next attempt
		// sees that; if it didn't, it can't any more once the next attempt has.
		store.AfterUnknown(func(ctx context.Context, change model.Change) error {
			if s.Command == "ADD" { // a GC has many changes at once, and undoes nothing
				s.lost = append(s.lost, change)
			}
			return ctx.Err()
		}))
	if err == nil {
		killpoint.Step("committed")
	}
	return revision, err
}

// Lost reports whether the answer to a commit of an ADD was lost.
func (s *Store) Lost() bool { return len(s.lost) > 0 }

// Address is Transact for assigning or releasing addresses. It takes the host's lock, so that calls on this host don't
// conflict over its blocks, and reads the blocks of recent calls up front.
func (s *Store) Address(ctx context.Context, ranges []model.Range, decide decide, before func(*model.View) error) (int64, error) {
	if err := s.open(ctx); err != nil {
		return 0, err
	}
	release := s.lock(ctx)
	defer release()
	locks := NewLocks(s.RunDir)
	for _, c := range locks.hints() {
		if r := model.KeyRange(model.BlockKey{CIDR: c}); !slices.Contains(ranges, r) {
			ranges = append(ranges, r)
		}
	}
	var took []netip.Prefix
	revision, err := s.Transact(ctx, ranges, func(v *model.View) (model.Change, error) {
		change, err := decide(v)
		took = nil
		for _, p := range change.Puts {
			if k, ok := p.Key.(model.BlockKey); ok && s.Command == "ADD" {
				took = append(took, k.CIDR)
			}
		}
		return change, err
	}, before)
	if err == nil {
		locks.remember(took)
	}
	return revision, err
}

// lock takes the host's lock, waiting only for a limited time. The lock avoids conflicts; correctness comes from the
// commit's compares. So the call goes on if it can't have the lock.
func (s *Store) lock(ctx context.Context) (release func()) {
	ctx, cancel := context.WithTimeout(ctx, s.Conf.DatastoreTimeout/2)
	defer cancel()
	locks := NewLocks(s.RunDir)
	release, err := locks.Try(ipamLock)
	if err != nil && !errors.Is(err, os.ErrPermission) {
		_ = s.Read(ctx, []model.Range{model.KeyRange(model.ReadyKey{})}, nil) // connects while waiting; an error will recur
		release, err = locks.take(ctx, ipamLock)
	}
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, os.ErrPermission) {
			level = slog.LevelDebug
		}
		s.Log.Log(ctx, level, "going on without the host's lock", "error", err)
		return func() {}
	}
	killpoint.Step("locked")
	return release
}

// Read is Transact for a decision that changes nothing.
func (s *Store) Read(ctx context.Context, ranges []model.Range, look func(*model.View) error) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	var read *model.View
	defer func() { s.warnInvalid(read) }()
	_, err := s.client.Transact(ctx, ranges, func(v *model.View) (model.Change, error) {
		if look == nil {
			return model.Change{}, nil
		}
		read = v
		return model.Change{}, look(v)
	})
	return err
}

// warnInvalid logs entries that don't parse among those the latest decision was made from.
func (s *Store) warnInvalid(v *model.View) {
	if v == nil {
		return
	}
	for _, r := range v.Ranges() {
		entries, _ := v.Read(r)
		for _, e := range entries {
			if e.Key != nil && e.Err != nil {
				s.Log.Warn("data in etcd does not parse", "key", e.Path, "error", e.Err)
			}
		}
	}
}

// Writable checks whether etcd would accept what an ADD writes, without writing it. It adds a compare that can't
// succeed, which etcd evaluates only after its own checks for space and permissions.
func (s *Store) Writable(ctx context.Context, change model.Change) error {
	change.Compares = []model.Compare{{Key: model.ReadyKey{}, Revision: 1<<62 - 1}}
	puts := change.Puts
	change.Puts = nil
	for _, p := range puts {
		if _, large := p.Key.(model.BlockKey); large { // members also write a failed transaction to disk; deleting takes the same permission
			change.Deletes = append(change.Deletes, p.Key)
		} else {
			change.Puts = append(change.Puts, p)
		}
	}
	_, err := s.client.Commit(ctx, change)
	if _, ok := errors.AsType[*store.ConflictError](err); ok {
		return nil
	}
	return err
}

// pageSize is the number of entries that one round trip lists.
const pageSize = 1000

// List reads everything below a prefix, page by page.
func (s *Store) List(ctx context.Context, prefix string, keysOnly bool) (all []model.Entry, err error) {
	r := model.Range{Prefix: prefix, Limit: pageSize, KeysOnly: keysOnly}
	for {
		var page []model.Entry
		if err := s.Read(ctx, []model.Range{r}, func(v *model.View) error { page, _ = v.Read(r); return nil }); err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < pageSize {
			return all, nil
		}
		r.From = page[len(page)-1].Path + "\x00"
	}
}

// Owner finds an endpoint of this host, other than except, that uses the interface. It reads all of the host's
// endpoints, so it is called only if a link is in the way.
func (s *Store) Owner(ctx context.Context, hostIf string, except model.WorkloadEndpointKey) (path string, found bool, err error) {
	entries, err := s.List(ctx, model.WorkloadEndpointPrefix(s.Node), false)
	for _, e := range entries {
		if ep, ok := e.Value.(model.WorkloadEndpoint); ok && ep.Name == hostIf && e.Key != except {
			return e.Path, true, nil
		}
	}
	return "", false, err
}

// CheckReady returns an error if the data in etcd may not be used.
func CheckReady(v *model.View) error {
	path := model.ReadyKey{}.Path()
	e := v.Get(model.ReadyKey{})
	if e.Value == model.Ready(true) {
		return nil
	}
	if e.Err != nil {
		return protocol.Failf(protocol.CodeData, "`calicoctl datastore unlock` makes it true; `lock` makes it false, while calico's data is being changed", "%s: %w", path, e.Err)
	}
	if !e.Exists() {
		return protocol.Failf(protocol.CodeTryAgain, "make the pools, then `calicoctl datastore unlock`", "calico's data in etcd is not ready: %s is missing", path)
	}
	return protocol.Failf(protocol.CodeTryAgain, "wait until the upgrade of calico's data has ended", "calico's data in etcd is not ready: %s is false", path)
}
