// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// host reports that the host is alive, under a lease. The owner of the lease that the status in etcd is attached to owns the name: while
// that is another agent, nothing is written in the name, and what is programmed stays, until that lease has ended.
type host struct {
	log       *slog.Logger
	store     *store.Client
	name      string
	health    *health.Monitor
	problems  *problems.Ledger
	naming    *mailbox.Value[string]
	leases    *leases
	addresses func() ([]netip.Addr, error) // of this host
	started   time.Time
	wake      mailbox.Signal
	progress  mailbox.Signal // reached has changed

	// Only run uses the rest, except what mu guards.
	lease      *store.Lease
	ttl        time.Duration // of the lease
	former     *store.Lease  // what is in etcd may still be attached to it
	lapsed     bool          // the lease has ended, and the status was not written since
	registered bool          // the object that says that the host exists was created
	reported   time.Time     // the last status

	mu       sync.Mutex
	how      Settings
	first    bool  // the first update is done
	unlisted bool  // the object that says that the host exists was deleted
	doubted  bool  // etcd may be another one
	written  int64 // revision of the last status
	realised realised
	reached  int64 // of realised, the latest that is known
}

func newHost(cfg Config, client *store.Client, n *mailbox.Value[string]) *host {
	known, err := openLeases(cfg.VarDir, cfg.Place)
	if err != nil {
		cfg.Logger.Warn("the file that proves the host's status to be its own can't be read: where etcd has a status and none of the host's addresses, its lease must end first", "file", filepath.Join(cfg.VarDir, LeasesName), "reason", err)
	}
	return &host{
		log: cfg.Logger, store: client, name: cfg.Node, health: cfg.Health, problems: cfg.Problems, naming: n,
		leases: known, addresses: ownAddresses, started: time.Now(), wake: mailbox.NewSignal(), progress: mailbox.NewSignal(),
	}
}

func (h *host) firstUpdate() { h.note(func() { h.first = true }) }

// configure applies settings: at once if they enable or change reporting.
func (h *host) configure(s Settings) {
	h.mu.Lock()
	same := h.how.Interval == s.Interval
	h.how = s
	h.mu.Unlock()
	if !same {
		h.wake.Send()
	}
}

// note changes what other goroutines pass, and triggers a write.
func (h *host) note(change func()) {
	h.mu.Lock()
	change()
	h.mu.Unlock()
	h.wake.Send()
}

// done records that a part of the agent has done everything up to a revision.
func (h *host) done(part int, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.realised.done[part] = revision
	if now := h.realised.reached(); now != 0 && now != h.reached {
		h.reached = now
		h.progress.Send()
	}
}

// update takes in one update of the watch.
func (h *host) update(u model.Update) {
	h.mu.Lock()
	h.realised.update(u)
	h.mu.Unlock()
	if u.Resync {
		h.note(func() { h.doubted = true })
	}
	for _, e := range u.Entries {
		switch e.Key {
		case model.StatusKey{Host: h.name}:
			h.heard(e, u.Resync)
		case addressKeys(h.name)[0], addressKeys(h.name)[1]:
			if h.naming.Get() != "" {
				h.wake.Send() // the reason includes the other host's address
			}
		case model.HostMetadataKey{Host: h.name}:
			if !e.Exists() {
				h.note(func() { h.unlisted = true })
			}
		}
	}
}

// heard takes in the host's status in etcd. If it is another agent's, nothing is done in the name from now on.
func (h *host) heard(e model.Entry, resync bool) {
	h.mu.Lock()
	late := e.Exists() && e.Revision <= h.written && !resync // this agent's own status is newer
	h.mu.Unlock()
	if late || e.Exists() && h.leases.owns(e.Lease) {
		return
	}
	if e.Exists() && h.naming.Get() == "" {
		h.naming.Set((&nameTakenError{Name: h.name}).Error())
	}
	h.wake.Send()
}

// run writes until the context ends.
func (h *host) run(ctx context.Context) error {
	defer h.leave()
	t := newTask(h.log.With("what", "the host's status"), 0)
	defer t.timer.Stop()
	for {
		var lost <-chan struct{}
		if h.lease != nil {
			lost = h.lease.Lost()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
			t.wake()
		case <-h.progress:
			if t.pause == 0 { // else the next try says it as well
				t.timer.Reset(time.Until(h.reported.Add(pace)))
			}
		case <-lost:
			h.lease, h.lapsed = nil, true
			t.timer.Reset(0)
		case <-t.timer.C:
			how, err := h.report(ctx)
			if t.done(ctx, err) && how.Interval > 0 {
				t.timer.Reset(how.Interval)
			}
			t.tell(h.health, "status of the host")
		}
	}
}

// report writes that the host is alive, if it owns the name, and returns the settings that it used.
func (h *host) report(ctx context.Context) (how Settings, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	h.mu.Lock()
	how, first := h.how, h.first
	unlisted, doubted := h.unlisted, h.doubted
	h.unlisted, h.doubted = false, false
	h.mu.Unlock()
	if unlisted && h.registered && !doubted {
		h.log.Warn("the host's entry in etcd was deleted while its agent runs: it is made again; to take the host away stop the agent first")
	}
	h.registered = h.registered && !unlisted && !doubted

	if how.Interval == 0 {
		err = h.fallSilent(ctx)
	} else {
		err = h.write(ctx, how.TTL, first)
	}
	taken, isTaken := errors.AsType[*nameTakenError](err)
	switch {
	case isTaken:
		h.say(taken)
		h.naming.Set(taken.Error())
		return how, nil
	case err != nil && h.lapsed:
		return how, fmt.Errorf("the lease of the host's status has ended, so that others may take this host for dead: %w", err)
	case err != nil:
		return how, err
	}
	h.say(nil)
	h.naming.Set("")
	return how, h.register(ctx, first)
}

// write writes the status, replacing only none or this host's.
func (h *host) write(ctx context.Context, ttl time.Duration, first bool) error {
	if err := h.hold(ctx, ttl); err != nil {
		return err
	}
	own, err := h.addresses()
	if err != nil {
		return fmt.Errorf("write the host's status: read the host's addresses: %w", err)
	}
	now := time.Now()
	h.mu.Lock()
	status := model.Status{Time: now.UTC().Truncate(time.Second), Uptime: now.Sub(h.started), FirstUpdate: first, PolicyRevision: h.reached}
	h.mu.Unlock()
	key := model.StatusKey{Host: h.name}
	revision, err := h.store.Transact(ctx, h.ranges(), func(v *model.View) (model.Change, error) {
		if err := h.judge(v, own); err != nil {
			return model.Change{}, err
		}
		c := model.Change{Compares: []model.Compare{v.Compare(key)}, Puts: []model.Put{{Key: key, Value: status}}}
		if stands := v.Get(key); !stands.Exists() {
			// Another host may have got an address since, and must not learn that this one lives and has it.
			for _, stale := range h.staleAddresses(v, own) {
				c.Compares, c.Deletes = append(c.Compares, v.Compare(stale)), append(c.Deletes, stale)
			}
		}
		return c, nil
	}, store.UnderLease(h.lease))
	if errors.Is(err, store.ErrLeaseEnded) {
		h.drop(h.lease)
		h.lease, h.lapsed = nil, true
	}
	if err != nil {
		return fmt.Errorf("write the host's status: %w", err)
	}
	h.mu.Lock()
	h.written = revision
	h.mu.Unlock()
	h.lapsed, h.reported = false, now
	if h.former != nil {
		h.drop(h.former)
		h.former = nil
	}
	h.keep(h.leases.settle(h.lease.ID()))
	last := model.Change{Puts: []model.Put{{Key: model.LastStatusKey{Host: h.name}, Value: status}}}
	if _, err := h.store.Commit(ctx, last); err != nil {
		return fmt.Errorf("write the host's last status: %w", err)
	}
	return nil
}

// hold gets a lease, and another one if its TTL changes.
func (h *host) hold(ctx context.Context, ttl time.Duration) error {
	if h.lease != nil && h.ttl == ttl {
		return nil
	}
	lease, err := h.store.Lease(ctx, ttl)
	if err != nil {
		return fmt.Errorf("write the host's status: %w", err)
	}
	if h.former != nil {
		h.drop(h.former)
	}
	h.former, h.lease, h.ttl = h.lease, lease, ttl
	h.keep(h.leases.take(lease.ID()))
	return nil
}

// keep reports that the leases are not on disk.
func (h *host) keep(err error) {
	if err != nil {
		err = fmt.Errorf("what proves that the host's status is its own is not on disk, so that the next agent waits until its lease ends, should the host have other addresses then: %w", err)
	}
	h.problems.Tell(problems.Host, LeasesName, err)
}

// fallSilent removes from etcd whether the host is alive: others then take it to be. It deletes both keys at once, as one without the other
// means a dead host.
func (h *host) fallSilent(ctx context.Context) error {
	keys := []model.Key{model.StatusKey{Host: h.name}, model.LastStatusKey{Host: h.name}}
	own, err := h.addresses()
	if err != nil {
		return fmt.Errorf("delete the host's status: read the host's addresses: %w", err)
	}
	_, err = h.store.Transact(ctx, append(h.ranges(), model.KeyRange(keys[1])), func(v *model.View) (model.Change, error) {
		if err := h.judge(v, own); err != nil {
			return model.Change{}, err
		}
		var c model.Change
		for _, key := range keys {
			if stands := v.Get(key); stands.Exists() {
				c.Compares, c.Deletes = append(c.Compares, v.Compare(key)), append(c.Deletes, key)
			}
		}
		return c, nil
	})
	if err != nil {
		return fmt.Errorf("delete the host's status: %w", err)
	}
	for _, lease := range []*store.Lease{h.lease, h.former} {
		if lease != nil {
			h.drop(lease)
		}
	}
	h.lease, h.former, h.lapsed = nil, nil, false
	return nil
}

// register creates the object that says that the host exists, after the first update, and again if it was deleted: for others the host
// would be gone, while its pods run.
func (h *host) register(ctx context.Context, first bool) error {
	if !first || h.registered {
		return nil
	}
	key := model.HostMetadataKey{Host: h.name}
	_, err := h.store.Commit(ctx, model.Change{
		Compares: []model.Compare{{Key: key}},
		Puts:     []model.Put{{Key: key, Value: model.HostMetadata{}}},
	})
	if _, exists := errors.AsType[*store.ConflictError](err); err != nil && !exists {
		return fmt.Errorf("write the host's metadata: %w", err)
	}
	h.registered = true
	return nil
}

// say reports whether the host owns its name, when that changes.
func (h *host) say(taken *nameTakenError) {
	var err error
	reason := ""
	if taken != nil {
		err, reason = taken, taken.Error()
	}
	h.health.Set("name", reason)
	switch before, after := h.problems.Note(problems.Host, problemName, err); {
	case after == before:
	case after == "":
		h.log.Info("the host has its name again: the other one is gone")
	default:
		h.log.Error("nothing is done in the host's name; what is programmed stays", "reason", reason)
	}
}

// leave stops keeping the leases alive.
func (h *host) leave() {
	for _, lease := range []*store.Lease{h.lease, h.former} {
		if lease != nil {
			lease.Leave()
		}
	}
}

// drop makes etcd delete what is attached to the lease.
func (h *host) drop(lease *store.Lease) {
	if err := lease.Close(); err != nil {
		h.log.Warn("the host's status stays in etcd until its lease ends", "err", err)
	}
}
