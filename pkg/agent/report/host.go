// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// reportHost writes that this agent lives.
func (r *Reporter) reportHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	how := r.Params()
	first := r.isFirst()
	p, withheld, ok := r.permitted()
	if withheld {
		r.takeBack()
		return nil
	}
	named := r.Naming.Waits() == ""
	if how.ReportInterval == 0 && named { // else the name has to be claimed first
		if err := r.fallSilent(ctx); err != nil {
			return err
		}
		return r.registerAfter(ctx, first)
	}
	r.silent = false
	if !ok {
		return nil // it is asked for again
	}
	if p.Lease != 0 && r.former != nil && r.former.ID() == p.Lease {
		r.turnBack()
	}
	if p.Lease != 0 && (r.lease == nil || r.lease.ID() != p.Lease) {
		return nil // that lease has lapsed, of which the identity was told
	}
	if err := r.hold(ctx, how.ReportTTL, p.Lease != 0); err != nil {
		return err
	}
	now := time.Now()
	status := model.Status{Time: now.UTC().Truncate(time.Second), Uptime: now.Sub(r.started), FirstUpdate: first}
	key := model.StatusKey{Host: r.host}
	live := model.Change{Puts: []model.Put{{Key: key, Value: status}}}
	if r.asks != nil {
		live.Compares = []model.Compare{{Key: key, Revision: p.Revision}}
	}
	revision, err := r.store.Commit(ctx, live, store.WithLease(r.lease))
	conflict, overtaken := errors.AsType[*store.ConflictError](err)
	ended := errors.Is(err, store.ErrLeaseEnded)
	switch {
	case ended && r.asks != nil:
		r.drop(r.lease)
		r.lease = nil
		r.lapsed()
		return errEnded
	case overtaken:
		r.overtaken(p, conflict.Have)
		return nil
	case err != nil:
		return fmt.Errorf("write the host's status: %w", err)
	}
	r.written(p, revision, r.lease.ID())
	if r.former != nil {
		r.drop(r.former)
		r.former = nil
	}
	if !named {
		return nil
	}
	last := model.Change{Puts: []model.Put{{Key: model.LastStatusKey{Host: r.host}, Value: status}}}
	if _, err := r.store.Commit(ctx, last); err != nil {
		return fmt.Errorf("write the host's last status: %w", err)
	}
	return r.registerAfter(ctx, first)
}

var errEnded = errors.New("the lease of the host's status has ended")

// lapses adds what comes of it where the status isn't written for longer than its lease.
func (r *Reporter) lapses(err error) error {
	if alive, wrote := r.Standing(); err == nil || alive != 0 || wrote == 0 {
		return err
	}
	dead := fmt.Errorf("%w, so that others may take this host for dead", errEnded)
	if errors.Is(err, errEnded) {
		return dead
	}
	return fmt.Errorf("%w: %w", dead, err)
}

// hold takes a lease, another one where it shall be longer or shorter, unless the one
// that there is must do.
func (r *Reporter) hold(ctx context.Context, ttl time.Duration, this bool) error {
	if r.lease != nil && (r.ttl == ttl || this) {
		return nil
	}
	lease, err := r.store.Lease(ctx, ttl)
	if err != nil {
		return fmt.Errorf("write the host's status: %w", err)
	}
	beside := int64(0)
	if hangsOn := cmp.Or(r.former, r.lease); hangsOn != nil {
		beside = hangsOn.ID()
	}
	if r.keeps != nil {
		if err := r.keeps(lease.ID(), beside); err != nil {
			r.log.Warn("what proves that the host's status is its own was not written, it is tried again", "reason", err)
		}
	}
	switch {
	case r.former == nil:
		r.former = r.lease
	case r.lease != nil:
		r.drop(r.lease)
	}
	r.lease, r.ttl = lease, ttl
	return nil
}

// turnBack gives up the lease that was to come in the place of the former.
func (r *Reporter) turnBack() {
	if r.lease != nil {
		r.drop(r.lease)
	}
	r.lease, r.former, r.ttl = r.former, nil, 0
}

// registerAfter makes the object that says that the host exists, after the first update, and again
// where somebody has deleted it: to others the host would be gone, while its pods run.
func (r *Reporter) registerAfter(ctx context.Context, first bool) error {
	r.mu.Lock()
	unlisted := r.unlisted && r.registered
	r.unlisted = false
	r.mu.Unlock()
	if unlisted {
		r.registered = false
		r.log.Warn("the host's entry in etcd was deleted while its agent runs: it is made again; to take the host away stop the agent first")
	}
	if !first || r.registered {
		return nil
	}
	key := model.HostMetadataKey{Host: r.host}
	_, err := r.store.Commit(ctx, model.Change{
		Compares: []model.Compare{{Key: key}},
		Puts:     []model.Put{{Key: key, Value: model.HostMetadata{}}},
	})
	var exists *store.ConflictError
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("write the host's metadata: %w", err)
	}
	r.registered = true
	return nil
}

// fallSilent has etcd say nothing about whether the host lives: it is taken to
// live then. Both keys go at once, as one without the other is of a dead host.
func (r *Reporter) fallSilent(ctx context.Context) error {
	if r.silent {
		return nil
	}
	change := model.Change{Deletes: []model.Key{model.StatusKey{Host: r.host}, model.LastStatusKey{Host: r.host}}}
	if _, err := r.store.Commit(ctx, change); err != nil {
		return fmt.Errorf("delete the host's status: %w", err)
	}
	r.silent = true
	r.takeBack()
	return nil
}

// leave has the host's live status stay until its lease is over.
func (r *Reporter) leave() {
	for _, lease := range []*store.Lease{r.lease, r.former} {
		if lease != nil {
			lease.Leave()
		}
	}
	r.lease, r.former = nil, nil
}

// takeBack has etcd delete the host's live status.
func (r *Reporter) takeBack() {
	for _, lease := range []*store.Lease{r.lease, r.former} {
		if lease != nil {
			r.drop(lease)
		}
	}
	r.lease, r.former = nil, nil
	r.lapsed()
}

// drop has etcd delete what hangs on the lease.
func (r *Reporter) drop(lease *store.Lease) {
	if err := lease.Close(); err != nil {
		r.log.Warn("the host's status stays in etcd until its lease ends", "err", err)
	}
}
