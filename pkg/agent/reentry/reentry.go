// SPDX-License-Identifier: Apache-2.0

// Package reentry enters the host's pods again in an etcd that doesn't know them: one that was created anew, or restored from a backup.
// Until that is done it withholds such an etcd from the rest of the agent, so that what is programmed stays, and admits no new pod, which
// might get an address in use. It also audits this host's addresses in etcd.
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

// ErrReplaced ends the watch of an etcd that replaced another. The pods are entered in it now: start again from a snapshot.
var ErrReplaced = errors.New("etcd was replaced, and is to be read anew")

const (
	settle = 10 * time.Second
	// patience is how many settle times an address that another pod holds is retried: an ADD that no agent admitted gives it back when it
	// times out.
	patience = 6
	// pause is the pause between tries.
	pause          = 500 * time.Millisecond
	requestTimeout = 10 * time.Second
	// part is this package's name on the health page and in the ledger.
	part = "pods in a replaced etcd"
)

// guidKey names the cluster that etcd's content belongs to: new content gets a new GUID.
var guidKey = model.GlobalConfigKey{Name: "ClusterGUID"}

// Etcd is what Pods needs of etcd.
type Etcd interface {
	Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error)
	Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...store.TransactOption) (int64, error)
}

// Config configures Pods.
type Config struct {
	Node   string
	RunDir string // holds the record of the host's endpoints: a reboot deletes it, as it does pods
	VarDir string // holds the cluster's GUID
	Etcd   Etcd
	// Links lists the links of the host.
	Links func() ([]link.Link, error)
	// LeadsTo reports whether the host has a route to one of the addresses alone by the link.
	LeadsTo func(l link.Link, addrs []netip.Addr) bool
	// Naming says why the node's name may be another host's, "" = it is this one's.
	Naming   *mailbox.Value[string]
	Health   *health.Monitor
	Problems *problems.Ledger
	Logger   *slog.Logger
	// Entered counts re-entered endpoints.
	Entered prometheus.Counter
	// Settle is the least time for which new pods wait, so that other hosts' pods are entered too before addresses are allocated: all
	// agents notice such an etcd within seconds. 0 = 10 s.
	Settle time.Duration
}

// Pods knows which etcd the host's pods are in. Only one goroutine may call Update.
type Pods struct {
	Config
	record   record
	guid     string    // of the known cluster, "" = none yet
	meets    time.Time // when to try next to get a GUID
	stored   string    // the GUID in etcd
	ready    bool
	revision int64 // the latest one of a key in the etcd that the pods are in; 0 = none yet
	deleted  bool  // the latest key may be deleted
	held     atomic.Pointer[string]

	wake   mailbox.Signal  // starts an audit
	listed *problems.Group // by the audit, by path

	mu   sync.Mutex
	left []living // not entered as they should be by a re-entry
}

// New reads what a former agent left on disk.
func New(cfg Config) *Pods {
	k := &Pods{Config: cfg, record: openRecord(cfg.RunDir), wake: mailbox.NewSignal(), listed: cfg.Problems.Group(allocation)}
	guid, err := readGUID(cfg.VarDir)
	if err != nil {
		cfg.Logger.Warn("which cluster this host's pods are of can't be read: a replaced etcd is not noticed by it", "reason", err)
	}
	k.guid, k.revision = guid, k.record.newest()
	return k
}

// Held returns why no pod is admitted now, "" = pods are. It is safe for concurrent use.
func (k *Pods) Held() string {
	if why := k.held.Load(); why != nil {
		return *why
	}
	return ""
}

// Update takes in an update before the rest of the agent. After ErrReplaced the rest must not get this update, nor others until a new
// snapshot. Update returns the context's error when that ends.
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
	// Compare keys' revisions: a restore may raise that of etcd itself.
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
	} else { // an update without a newer key is a deletion
		k.deleted = true
	}
	if k.guid == "" && k.ready && !time.Now().Before(k.meets) {
		k.meet(ctx)
	}
	k.Problems.Tell(problems.Host, "record of pods", k.record.take(k.Node, u))
	k.look(u)
	return nil
}

// meet gets the GUID of a cluster that is new to this host; a cluster without a GUID gets one.
func (k *Pods) meet(ctx context.Context) {
	k.meets = time.Now().Add(time.Minute)
	guid, err := k.name(ctx)
	if err == nil {
		k.stored = guid // the watch hasn't shown it yet
		err = k.keep(guid)
	}
	if err != nil {
		err = fmt.Errorf("it is not kept, and a replaced etcd may not be noticed: %w", err)
	}
	k.Problems.Tell(problems.Host, "the cluster's GUID", err)
}

// keep records the cluster that the pods are in from now on.
func (k *Pods) keep(guid string) error {
	if err := writeGUID(k.VarDir, guid); err != nil {
		return err
	}
	k.guid = guid
	return nil
}

// name returns the cluster's GUID. It creates one if there is none, and replaces the known one: a backup has that one too, and hosts that
// are down now would take the cluster for their own etcd.
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

// reenter enters the pods, repeatedly until it succeeds, and for as long as other hosts may need.
func (k *Pods) reenter(ctx context.Context) error {
	defer k.hold("")
	var since time.Time // Ready was true
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

// leave passes the rest of a re-entry to the audit.
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

// waits returns why pods can't be entered yet.
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
