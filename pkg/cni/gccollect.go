// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel"
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
	if id.key != (model.WorkloadEndpointKey{}) && !g.seen[id.key] {
		// Known by a block alone.
		v := newView()
		if err := g.s.read(ctx, v, []ipam.Want{{Key: id.key}}); err != nil {
			return err
		}
		if ep, ok := v.get(id.key).Value.(model.WorkloadEndpoint); ok && ep.ContainerID == id.cid {
			g.s.log.Info("leaving it: it was added since the endpoints were listed", "handle", id.handle)
			return nil
		}
	}
	if id.hostIf != "" {
		link, err := kernel.HostLink(id.hostIf)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case link.Alias == id.alias, halfMade(link):
			if id.key == (model.WorkloadEndpointKey{}) {
				// Known by its alias alone, which another network's may resemble.
				owner, owned, err := g.s.ownerOf(ctx, link.Name, id.key)
				if err != nil {
					return err
				}
				if owned {
					g.s.log.Info("leaving a link that an endpoint lives on", "link", link.Name, "endpoint", owner)
					return nil
				}
			}
			if err := deleteLink(link.Name); err != nil {
				return err
			}
		}
	}
	g.s.log.Info("collecting", "handle", id.handle, "link", id.hostIf)
	if id.hostIf != "" && id.alias == "" {
		return nil
	}
	if g.s.plugin == CalicoIPAM {
		return g.s.releaseHandle(ctx, id)
	}
	if id.cid == "" {
		id.cid, id.ifName, _ = splitHandle(g.s.conf.Name, id.handle, "")
	}
	r := &removal{s: g.s, id: id, addrs: true}
	if err := r.run(ctx); err != nil {
		return err
	}
	if id.cid == "" || id.ifName == "" {
		return nil
	}
	// Its own GC may do nothing: host-local has none.
	return g.s.giveBack(ctx, id)
}
