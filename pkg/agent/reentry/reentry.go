// SPDX-License-Identifier: Apache-2.0

// Package reentry enters the host's pods again in an etcd that doesn't know them: one that was made anew, or restored from a
// backup. Until that is done the agent hears nothing of such an etcd, so that what is programmed stays, and lets no new pod in,
// which might have been given an address in use. It also audits what etcd says of the host's addresses.
package reentry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// ErrReplaced ends a watch of an etcd that was another one. The pods are entered in it now: watch it from a snapshot on.
var ErrReplaced = errors.New("etcd was replaced, and is to be read anew")

const (
	settle = 10 * time.Second
	// patience is for how many times that an address which somebody else has is tried for: an ADD that was let in by no agent
	// gives it back when its own time is over.
	patience = 6
	// pause is between tries.
	pause          = 500 * time.Millisecond
	requestTimeout = 10 * time.Second
	// part is what the health page and the ledger call it.
	part = "pods in a replaced etcd"
)

// guidKey names the cluster that etcd's content is of: who makes the content anew makes it anew, too.
var guidKey = model.GlobalConfigKey{Name: "ClusterGUID"}

// Etcd is what the keeper needs of it.
type Etcd interface {
	Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error)
	Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...store.TransactOption) (int64, error)
}

// Config is what a keeper works with.
type Config struct {
	Node   string
	RunDir string // has the record of the host's endpoints: it ends with a reboot, as pods do
	VarDir string // has the cluster's GUID
	Etcd   Etcd
	// Links lists the links of the host.
	Links func() ([]link.Link, error)
	// LeadsTo says whether the host has a route to one of the addresses alone by the link.
	LeadsTo func(l link.Link, addrs []netip.Addr) bool
	// Naming says why the node's name may be another host's, "" = it is its own.
	Naming   *mailbox.Value[string]
	Health   *health.Monitor
	Problems *problems.Ledger
	Logger   *slog.Logger
	// Entered counts endpoints that were entered again.
	Entered prometheus.Counter
	// Settle is for how long new pods wait at least, so that other hosts' pods are entered too before addresses are given
	// out: all agents hear of such an etcd within seconds. 0 = 10 s.
	Settle time.Duration
}

// Pods knows which etcd the host's pods are in. Update is called by one goroutine.
type Pods struct {
	Config
	record   record
	guid     string    // of the cluster that is known, "" = of none yet
	meets    time.Time // not before it is tried to get a GUID
	stored   string    // what etcd has
	ready    bool
	revision int64 // the last at which a key of the etcd that the pods are in was written; 0 = of none yet
	deleted  bool  // the key that was written last may be gone
	held     atomic.Pointer[string]

	wake   mailbox.Signal  // of the audit
	listed *problems.Group // by the audit, by path

	mu   sync.Mutex
	left []living // by a re-entry: those that are not entered as they should be
}

// New reads what a former agent has left.
func New(cfg Config) *Pods {
	k := &Pods{Config: cfg, record: openRecord(cfg.RunDir), wake: mailbox.NewSignal(), listed: cfg.Problems.Group(allocation)}
	guid, err := readGUID(cfg.VarDir)
	if err != nil {
		cfg.Logger.Warn("which cluster this host's pods are of can't be read: a replaced etcd is not noticed by it", "reason", err)
	}
	k.guid, k.revision = guid, k.record.newest()
	return k
}

// Held says why no pod is let in now, "" = they are. It may be called by any goroutine.
func (k *Pods) Held() string {
	if why := k.held.Load(); why != nil {
		return *why
	}
	return ""
}

// Update takes in an update before anybody else does. ErrReplaced: nobody else is to hear of it, nor of others until a new
// snapshot. It returns the context's error where that ends.
func (k *Pods) Update(ctx context.Context, u model.Update) error {
	if u.Resync {
		k.stored, k.ready = "", false
	}
	var newest int64
	for _, e := range u.Entries {
		newest = max(newest, e.Revision)
		switch e.Key {
		case guidKey:
			text, _ := e.Value.(model.Text)
			k.stored = string(text)
		case model.ReadyKey{}:
			k.ready = e.Value == model.Ready(true)
		}
	}
	// Of keys, as a restore may raise the revision of etcd itself.
	back := u.Resync && (u.Restored || u.Revision < k.revision || newest < k.revision && !k.deleted) && k.revision > 0
	if back || k.guid != "" && k.stored != k.guid {
		k.Logger.Warn("etcd is another one than before: this host's pods are entered in it, and until then nothing of it is acted upon",
			"revision", u.Revision, "guid", k.stored, "before", k.guid, "went back", back)
		if err := k.reenter(ctx); err != nil {
			return err
		}
		k.revision, k.deleted = 0, false
		return ErrReplaced
	}
	if newest >= k.revision {
		k.revision, k.deleted = newest, false
	} else { // what comes without a new key is a deletion
		k.deleted = true
	}
	if k.guid == "" && k.ready && !time.Now().Before(k.meets) {
		k.meet(ctx)
	}
	k.Problems.Tell(problems.Host, "record of pods", k.record.take(k.Node, u))
	k.look(u)
	return nil
}

// meet has a cluster that this host knows none before get a GUID, if it has none.
func (k *Pods) meet(ctx context.Context) {
	k.meets = time.Now().Add(time.Minute)
	guid, err := k.name(ctx)
	if err == nil {
		k.stored = guid // which the watch has yet to tell
		err = k.keep(guid)
	}
	if err != nil {
		err = fmt.Errorf("it is not kept, and a replaced etcd may not be noticed: %w", err)
	}
	k.Problems.Tell(problems.Host, "the cluster's GUID", err)
}

// keep notes which cluster the pods are in from now on.
func (k *Pods) keep(guid string) error {
	if err := writeGUID(k.VarDir, guid); err != nil {
		return err
	}
	k.guid = guid
	return nil
}

// name returns the cluster's GUID. It makes one where there is none, and in place of the one that is known: a backup has that one
// too, and hosts which don't run now would take it for their own etcd.
func (k *Pods) name(ctx context.Context) (guid string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	fresh := newGUID()
	_, err = k.Etcd.Transact(ctx, []model.Range{model.KeyRange(guidKey)}, func(v *model.View) (model.Change, error) {
		text, _ := v.Get(guidKey).Value.(model.Text)
		if guid = string(text); guid != "" && guid != k.guid {
			return model.Change{}, nil
		}
		guid = fresh
		return model.Change{Compares: []model.Compare{v.Compare(guidKey)}, Puts: []model.Put{{Key: guidKey, Value: model.Text(fresh)}}}, nil
	})
	if err != nil {
		return "", fmt.Errorf("the cluster's GUID: %w", err)
	}
	return guid, nil
}

// reenter enters the pods, again and again until that is done, and for as long as others may need.
func (k *Pods) reenter(ctx context.Context) error {
	defer k.hold("")
	var since time.Time // Ready
	for {
		done := false
		err := k.waits(ctx)
		if err == nil {
			if since.IsZero() {
				since = time.Now()
			}
			late, last := time.Since(since) >= cmp.Or(k.Settle, settle), time.Since(since) >= patience*cmp.Or(k.Settle, settle)
			var left []living
			left, err = k.enterAll(ctx, late)
			if done = late && (!isTaken(err) || last) && !errors.Is(err, store.ErrUnavailable); done {
				k.leave(left, err)
				if err != nil {
					k.Logger.Error("some of this host's pods could not be entered in the etcd that is another one now", "err", err)
				}
			}
		}
		if done {
			var guid string
			guid, err = k.name(ctx)
			if errors.Is(err, store.ErrDenied) {
				k.Logger.Warn("the cluster's GUID may not be written: let this agent write "+guidKey.Path()+", or write it; until then a replaced etcd may not be noticed", "reason", err)
				guid, err = "", nil
			}
			if err == nil {
				err = k.keep(guid)
			}
			if err == nil {
				k.Logger.Info("this host's pods are entered in the etcd that is another one now", "guid", guid)
				return nil
			}
		}
		reason := "etcd is another one than before, and this host's pods are being entered in it"
		if err != nil {
			reason += ": " + problems.Reason(err)
		}
		k.hold(reason)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// leave leaves the rest of a re-entry to the audit.
func (k *Pods) leave(left []living, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left = left
	k.Problems.Tell(problems.Host, part, err)
}

func (k *Pods) hold(reason string) {
	k.held.Store(&reason)
	k.Health.Set(part, reason)
}

// waits says why pods can't be entered yet.
func (k *Pods) waits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	snapshot, err := k.Etcd.Read(ctx, model.KeyRange(model.ReadyKey{}))
	if err != nil {
		return err
	}
	if e, _ := snapshot.Get(model.ReadyKey{}); e.Value != model.Ready(true) {
		return errors.New(model.ReadyKey{}.Path() + " is not true")
	}
	if why := k.Naming.Get(); why != "" {
		return errors.New(why)
	}
	return nil
}
