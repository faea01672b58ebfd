// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// open prepares the client. Nothing is sent yet.
func (s *session) open(ctx context.Context) error {
	e := s.conf.Etcd
	client, err := store.Open(ctx, store.Config{
		Endpoints: e.Endpoints, DiscoverySRV: e.DiscoverySRV,
		CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
		Username: e.Username, PasswordFile: e.PasswordFile, Logger: s.log,
		TokenDir: filepath.Join(s.env.runDir, "etcd-sessions"),
		// Long enough for etcd to be started again; then the runtime, which asks
		// again, should know.
		RefusedTimeout: s.conf.DatastoreTimeout / 4,
	})
	if err != nil {
		if errors.Is(err, store.ErrAuth) || ctx.Err() != nil {
			return err
		}
		return fail(CodeConfig, err, "correct the etcd settings of the network configuration")
	}
	s.client = client
	return nil
}

// view is what one attempt has read.
type view struct {
	ipam     *ipam.View
	entries  map[model.Key]model.Entry
	absent   map[model.Key]bool // read, and not there
	revision int64
	wants    []ipam.Want // what was read, but for further pages
	later    *view       // the same where a commit conflicted, but for what costs etcd much
}

func newView() *view {
	return &view{ipam: ipam.NewView(), entries: make(map[model.Key]model.Entry), absent: make(map[model.Key]bool)}
}

// get returns the entry of a key that was read; one that isn't there does not
// Exist.
func (v *view) get(k model.Key) model.Entry { return v.entries[k] }

// needs is a *ipam.NeedError where one of the keys wasn't read.
func (v *view) needs(keys []model.Key) error {
	var wants []ipam.Want
	for _, k := range keys {
		if _, read := v.entries[k]; !read && !v.absent[k] {
			wants = append(wants, ipam.Want{Key: k})
		}
	}
	if len(wants) == 0 {
		return nil
	}
	return &ipam.NeedError{Wants: wants}
}

// compare demands that the key is as it was read.
func (v *view) compare(k model.Key) model.Compare {
	return model.Compare{Key: k, Revision: v.entries[k].Revision}
}

// read reads what is wanted into the view, in one round trip.
func (s *session) read(ctx context.Context, v *view, wants []ipam.Want) error {
	for _, w := range wants {
		if w.From == "" {
			v.wants = append(v.wants, w)
		}
	}
	snapshot, wants, err := s.client.ReadWants(ctx, wants)
	if err != nil {
		return err
	}
	s.show(v, wants, snapshot)
	return nil
}

// show tells the view what was read.
func (s *session) show(v *view, wants []ipam.Want, snapshot model.Snapshot) {
	v.revision = snapshot.Revision
	for i, entries := range snapshot.Ranges {
		if k := wants[i].Key; k != nil && len(entries) == 0 {
			v.absent[k] = true
		}
		for _, e := range entries {
			if e.Key == nil {
				continue
			}
			if e.Err != nil {
				s.log.Warn("data in etcd does not parse", "key", e.Path, "error", e.Err)
			}
			v.entries[e.Key] = e
		}
		v.ipam.Add(wants[i], snapshot.Revision, entries)
	}
}

// reading is what a call reads first, under way while it does other things.
type reading struct {
	*future
	wants        []ipam.Want
	v            *view
	began, ended time.Time
}

// took is how long it took, or has taken until now.
func (r *reading) took() time.Duration {
	select {
	case <-r.done:
		return r.ended.Sub(r.began)
	default:
		return time.Since(r.began)
	}
}

// begin connects to etcd and reads what is wanted in any case. The call must
// hold the lock of its interface: what one that is at work there has not
// written yet would be missed.
func (s *session) begin(ctx context.Context, wants []ipam.Want) *reading {
	r := &reading{wants: wants, v: newView(), began: time.Now()}
	r.future = s.async(func() error {
		defer func() { r.ended = time.Now() }()
		if s.client == nil {
			if err := s.open(ctx); err != nil {
				return err
			}
		}
		err := s.read(ctx, r.v, wants)
		step("first read")
		return err
	})
	return r
}

// withHints adds the blocks that the host took addresses from lately.
func (s *session) withHints(wants []ipam.Want) []ipam.Want {
	for _, p := range s.locks.hints() {
		if w := (ipam.Want{Key: model.BlockKey{CIDR: p}}); !slices.Contains(wants, w) {
			wants = append(wants, w)
		}
	}
	return wants
}

// transaction is one change of etcd, decided on what was read.
type transaction struct {
	// first is what is read in any case.
	first *reading
	// decide makes the change from the view. A *ipam.NeedError has more read,
	// and decide called again.
	decide func(v *view) (model.Change, error)
	// before runs when the change is decided, before it is committed.
	before func(v *view) error
	// ifTaken is what must be read besides, should calls that this one waits for take the last addresses. That took so
	// many revisions of etcd.
	ifTaken func(v *view, revisions int64) []ipam.Want
	// took are the blocks of the addresses that the change gives out, the next call's hints.
	took func() []netip.Prefix
	// unlocked: address management is not involved.
	unlocked bool
}

// maxRounds bounds the reading of one decision.
const maxRounds = 1000

// maxAgain bounds what is read at once after a conflict: others may have taken one block after the other from before it.
const maxAgain = 4000

// manyNames is how many entries every member of etcd would have to go through for a conflict.
const manyNames = 1000

// transact reads, decides and commits, and does so again where another writer
// was faster, or a member of etcd hangs, until ctx ends. It returns the revision of the commit, or that
// of the reading where there was nothing to change.
func (s *session) transact(ctx context.Context, t transaction) (int64, error) {
	if err := t.first.wait(); err != nil {
		return 0, err
	}
	v := t.first.v
	// What the first look shows to be needed is read under the lock.
	change, err := t.decide(v)
	need, more := errors.AsType[*ipam.NeedError](err)
	if err != nil && !more {
		return 0, err
	}
	if err == nil && change.Empty() {
		return v.revision, t.ready(v)
	}
	release, passed := func() {}, false
	if !t.unlocked {
		release, passed = s.lockIPAM(ctx, v.revision)
	}
	defer release()
	switch {
	case passed:
		wants := slices.Clone(t.first.wants)
		switch {
		case more:
			wants = append(wants, need.Wants...)
		case t.ifTaken != nil:
			wants = append(wants, t.ifTaken(v, s.locks.lastCommit()-v.revision)...)
		}
		wants = s.withHints(wants) // the call before this one may have made a block
		v = newView()
		if err := s.read(ctx, v, wants); err != nil {
			return 0, err
		}
	case more:
		if err := s.read(ctx, v, need.Wants); err != nil {
			return 0, err
		}
	}
	for attempt := 0; ; attempt++ {
		change, revision, failed := s.attempt(ctx, v, t)
		if failed == nil && !t.unlocked {
			s.locks.committed(revision)
			if t.took != nil {
				s.locks.remember(t.took())
			}
		}
		if !s.mayRepeat(ctx, change, failed) {
			return revision, failed
		}
		s.log.Debug("again", "reason", failed, "attempt", attempt)
		if attempt == 0 && v.later != nil {
			v = v.later
			continue
		}
		if err := store.Pause(ctx, attempt); err != nil {
			return 0, errors.Join(err, failed)
		}
		again := v.wants // what was needed before is needed again: it is read at once
		if len(again) > maxAgain {
			again = t.first.wants
		}
		v = newView()
		if err := s.read(ctx, v, again); err != nil {
			return 0, err
		}
	}
}

// mayRepeat says whether it helps to read and decide again: another writer was faster; or
// a member of etcd kept its answer to itself, and the change can't take effect later. Of
// what frees it can't: it compares what is there, with revisions that never come back.
func (s *session) mayRepeat(ctx context.Context, change model.Change, failed error) bool {
	if _, conflict := errors.AsType[*store.ConflictError](failed); conflict {
		return true
	}
	if !errors.Is(failed, store.ErrUnknownOutcome) || ctx.Err() != nil {
		return false
	}
	return s.env.command != "ADD" || s.fence(ctx, change) == nil
}

// attempt decides on the view, reading more where that is needed, and commits.
func (s *session) attempt(ctx context.Context, v *view, t transaction) (model.Change, int64, error) {
	for round := 0; ; round++ {
		change, err := t.decide(v)
		if need, more := errors.AsType[*ipam.NeedError](err); more && round < maxRounds {
			if err := s.read(ctx, v, need.Wants); err != nil {
				return change, 0, err
			}
			continue
		}
		if err != nil {
			return change, 0, err
		}
		step("decided")
		if err := t.ready(v); err != nil {
			return change, 0, err
		}
		if change.Empty() {
			return change, v.revision, nil
		}
		step("before commit")
		var found model.Snapshot
		wants := slices.DeleteFunc(slices.Clone(v.wants), func(w ipam.Want) bool { return w.If != nil || w.Before != "" || w.Limit > manyNames })
		revision, err := s.client.Commit(ctx, change)
		switch {
		case err == nil:
			step("committed")
		case found.Ranges != nil:
			v.later = newView()
			v.later.wants = wants
			s.show(v.later, wants, found)
		case s.env.command == "ADD" && errors.Is(err, store.ErrUnknownOutcome):
			s.undo.push("commit of unknown outcome", func(ctx context.Context) error { return s.fence(ctx, change) })
		}
		return change, revision, err
	}
}

func (t transaction) ready(v *view) error {
	if t.before == nil {
		return nil
	}
	return t.before(v)
}

// lockIPAM keeps the calls of this host from fighting over its blocks. It is a
// courtesy: what keeps the data right is the compares of the commit. So where
// there is no lock to be had the call goes on without. passed says that another
// call has, or may have, changed what was read at the revision.
func (s *session) lockIPAM(ctx context.Context, revision int64) (release func(), passed bool) {
	ctx, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout/2)
	defer cancel()
	release, waited, err := s.locks.take(ctx, ipamLock)
	if err != nil {
		level := s.log.Warn
		if errors.Is(err, os.ErrPermission) {
			level = s.log.Debug
		}
		level("going on without the host's lock", "error", err)
		return func() {}, true
	}
	step("locked")
	return release, waited || s.locks.lastCommit() > revision
}

// lockInterface serialises the calls for one interface of one pod. Nothing
// else does, so a lock that cannot be had in time is an error; without a
// writable directory there is a warning. It is held until the call has ended
// and has undone what is to be undone.
func (s *session) lockInterface(ctx context.Context, hostIf string) error {
	lock, _, err := s.locks.takeFile(ctx, interfaceLock(hostIf))
	switch {
	case err == nil:
		s.lock = lock
		s.cleanup = append(s.cleanup, func() { drop(lock, interfaceLock(hostIf)) })
		return nil
	case ctx.Err() != nil:
		return failf(CodeTryAgain, "try again", "another call for the same interface is at work: %w", err)
	}
	s.log.Warn("going on without the interface's lock", "error", err)
	return nil
}

// checkReady says whether the data in etcd may be used.
func (v *view) checkReady() error {
	e := v.get(model.ReadyKey{})
	if ready, ok := e.Value.(model.Ready); ok && bool(ready) {
		return nil
	}
	if e.Err != nil {
		return failf(CodeData, "`etcdctl put` it as true, or as false while calico's data is being changed", "%s: %w", model.ReadyKey{}.Path(), e.Err)
	}
	if !e.Exists() {
		return failf(CodeTryAgain, "make the pools, then `etcdctl put /calico/v1/Ready true`", "calico's data in etcd is not ready: %s is missing", model.ReadyKey{}.Path())
	}
	return failf(CodeTryAgain, "wait until the upgrade of calico's data has ended", "calico's data in etcd is not ready: %s is false", model.ReadyKey{}.Path())
}
