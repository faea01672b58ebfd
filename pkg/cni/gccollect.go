// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/model"
)

// collect takes one stale container interface away, unless a call for it is at
// work right now.
func (g *collection) collect(ctx context.Context, id identity) error {
	lockName := id.hostIf
	if g.s.plugin == CalicoIPAM || lockName == "" {
		lockName = id.handle
	}
	release, err := g.s.locks.try(interfaceLock(lockName))
	if err != nil && !errors.Is(err, os.ErrPermission) {
		g.s.log.Info("leaving it: a call for it is at work", "handle", id.handle, "error", err)
		return nil
	}
	if err == nil {
		defer release()
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
	switch {
	case id.hostIf != "" && id.alias == "":
		return nil
	case id.key != (model.WorkloadEndpointKey{}):
		err = g.s.release(ctx, id, true)
	default:
		err = g.s.releaseHandle(ctx, id.handle)
	}
	if err != nil || !g.delegated() {
		return err
	}
	if id.cid == "" {
		// Container ids have no dots, as far as is known.
		rest := strings.TrimPrefix(id.handle, g.s.conf.Name+".")
		id.cid, id.ifName, _ = strings.Cut(rest, ".")
	}
	if id.cid == "" || id.ifName == "" {
		return nil
	}
	// Its own GC may do nothing: host-local has none.
	return g.s.giveBack(ctx, id)
}

// ordered is what is stale, endpoints first: a link stays while an endpoint lives
// on it, even one of a former sandbox.
func (g *collection) ordered() []identity {
	all := slices.Collect(maps.Values(g.stale))
	slices.SortFunc(all, func(a, b identity) int {
		return cmp.Or(cmp.Compare(a.lonely(), b.lonely()), cmp.Compare(a.handle, b.handle))
	})
	return all
}

// lonely is 1 where no endpoint is known.
func (id identity) lonely() int {
	if id.key == (model.WorkloadEndpointKey{}) {
		return 1
	}
	return 0
}
