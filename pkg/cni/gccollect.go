// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// atOnce is how many interfaces are collected at once: the kernel keeps a caller
// waiting 20 ms for each link, and a runtime gives GC some twenty seconds.
const atOnce = 16

// collectAll takes away what is stale, endpoints first: a link stays while an
// endpoint lives on it, even one of a former sandbox.
func (g *collection) collectAll(ctx context.Context) (errs []error) {
	var lonely, living []identity
	for _, id := range g.stale {
		if id.key == (model.WorkloadEndpointKey{}) {
			lonely = append(lonely, id)
		} else {
			living = append(living, id)
		}
	}
	for _, ids := range [][]identity{living, lonely} {
		// One after the other where they share a lock.
		byLock := make(map[string][]identity)
		for _, id := range ids {
			byLock[g.lockName(id)] = append(byLock[g.lockName(id)], id)
		}
		free := make(chan struct{}, atOnce)
		var collecting []*future
		for _, ids := range byLock {
			free <- struct{}{}
			collecting = append(collecting, g.s.async(func() error {
				defer func() { <-free }()
				var errs []error
				for _, id := range ids {
					if err := g.collect(ctx, id); err != nil {
						errs = append(errs, fmt.Errorf("%s: %w", id.handle, err))
					}
				}
				return errors.Join(errs...)
			}))
		}
		for _, f := range collecting {
			if err := f.wait(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// lockName says which lock keeps other calls away.
func (g *collection) lockName(id identity) string {
	if g.s.plugin == CalicoIPAM || id.hostIf == "" {
		return id.handle
	}
	return id.hostIf
}

// collect takes one stale container interface away, unless a call for it is at
// work right now.
func (g *collection) collect(ctx context.Context, id identity) error {
	release, err := g.s.locks.try(interfaceLock(g.lockName(id)))
	if err != nil && !errors.Is(err, os.ErrPermission) {
		g.s.log.Info("leaving it: a call for it is at work", "handle", id.handle, "error", err)
		return nil
	}
	if err == nil {
		defer release()
	}
	if isNew, err := g.isNew(ctx, id); err != nil || isNew {
		return err
	}
	r := &removal{s: g.s, id: id, addrs: true}
	r.noted, _ = g.s.delegations().read(delegationOf(id))
	if left, err := g.unlink(ctx, r); err != nil || left {
		return err
	}
	g.s.log.Info("collecting", "handle", id.handle, "link", id.hostIf)
	if err := g.release(ctx, r); err != nil {
		return err
	}
	g.collected.Add(1)
	return nil
}

// release gives back what has no link any more.
func (g *collection) release(ctx context.Context, r *removal) error {
	id := r.id
	switch {
	case id.hostIf != "" && id.alias == "":
		return nil
	case g.s.plugin == CalicoIPAM:
		return g.s.releaseHandle(ctx, id)
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	if id.cid == "" || id.ifName == "" {
		return nil
	}
	// Its own GC may do nothing: host-local has none.
	return g.s.giveBack(ctx, id)
}

// isNew reports whether the container, known by a block alone, was added since GC began:
// it has an endpoint by now that wasn't listed, or, under another main plugin, its handle is
// that new.
func (g *collection) isNew(ctx context.Context, id identity) (bool, error) {
	v := newView()
	if g.s.plugin == CalicoIPAM {
		key := model.HandleKey{ID: id.handle}
		if err := g.s.read(ctx, v, []ipam.Want{{Key: key}}); err != nil || v.get(key).Revision <= g.began {
			return false, err
		}
		g.s.log.Info("leaving it: it was added since GC began", "handle", id.handle)
		return true, nil
	}
	if id.key == (model.WorkloadEndpointKey{}) || g.seen[id.key] {
		return false, nil
	}
	if err := g.s.read(ctx, v, []ipam.Want{{Key: id.key}}); err != nil {
		return false, err
	}
	ep, ok := v.get(id.key).Value.(model.WorkloadEndpoint)
	if !ok || ep.ContainerID != id.cid {
		return false, nil
	}
	g.s.log.Info("leaving it: it was added since GC began", "handle", id.handle)
	return true, nil
}

// unlink removes the host's end of what is stale. left says that all else is to
// stay, too: an endpoint lives on it.
func (g *collection) unlink(ctx context.Context, r *removal) (left bool, err error) {
	if r.id.hostIf == "" {
		return false, nil
	}
	l, err := link.Find(r.id.hostIf)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case relabelled(l):
		r.nameless = &l
		return false, nil
	case l.Alias != r.id.alias && !halfMade(l):
		r.elsewhere = r.id.sameInterface(l.Alias)
		return false, nil
	}
	if r.id.key == (model.WorkloadEndpointKey{}) {
		// Known by its alias alone, which another network's may resemble.
		owner, owned, err := g.s.ownerOf(ctx, l.Name, r.id.key)
		if err != nil {
			return false, err
		}
		if owned {
			g.s.log.Info("leaving a link that an endpoint lives on", "link", l.Name, "endpoint", owner)
			return true, nil
		}
	}
	r.linked = l.Alias == r.id.alias
	return false, deleteLink(l)
}
