// SPDX-License-Identifier: Apache-2.0

// Package gc frees and deletes what a network holds on this node for containers that are gone.
package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/addresses"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/delegate"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// Collection is one GC run.
type Collection struct {
	Conf     *netconf.Config
	Plugin   protocol.Plugin
	Etcd     *addresses.Store
	Locks    addresses.Locks
	Delegate *delegate.Plugin // the plugin that assigned the addresses; nil for our own
	Log      *slog.Logger

	began int64            // etcd's revision at the start
	valid map[string]bool  // handles
	stale map[string]stale // by handle
	links map[string]link.Link
	seen  map[model.WorkloadEndpointKey]bool // endpoints found by listing

	collected atomic.Int64 // number of stale interfaces removed
}

// Run removes what is not in the list of valid attachments and returns how many interfaces that was.
func (g *Collection) Run(ctx context.Context) (int64, error) {
	err := g.Etcd.Read(ctx, []model.Range{model.KeyRange(model.ReadyKey{})}, func(v *model.View) error {
		g.began = v.Revision()
		return addresses.CheckReady(v)
	})
	if err != nil {
		return 0, err
	}
	g.valid, g.stale = make(map[string]bool), make(map[string]stale)
	for _, a := range g.Conf.ValidAttachments {
		g.valid[protocol.HandleID(g.Conf.Name, a.ContainerID, a.IfName)] = true
	}
	if err := g.find(ctx); err != nil {
		return 0, err
	}
	killpoint.Step("found")
	err = firstOf(g.collectAll(ctx))
	return g.collected.Load(), err
}

// firstOf joins the first few errors and counts the rest, which usually have the same cause.
func firstOf(errs []error) error {
	const most = 3
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// atOnce is how many interfaces are collected concurrently: deleting a link takes the kernel 20 ms, and a runtime
// allows GC about twenty seconds.
const atOnce = 16

// collectAll removes everything stale, interfaces with endpoints first: a link stays while an endpoint uses it, even
// one of a former sandbox.
func (g *Collection) collectAll(ctx context.Context) (errs []error) {
	var lonely, living []stale
	for _, s := range g.stale {
		if s.Key == (model.WorkloadEndpointKey{}) {
			lonely = append(lonely, s)
		} else {
			living = append(living, s)
		}
	}
	for _, all := range [][]stale{living, lonely} {
		// Interfaces that share a lock are collected one after another.
		byLock := make(map[string][]stale)
		for _, s := range all {
			byLock[g.lockName(s)] = append(byLock[g.lockName(s)], s)
		}
		free := make(chan struct{}, atOnce)
		var collecting []*attach.Future
		for _, some := range byLock {
			free <- struct{}{}
			collecting = append(collecting, attach.Async(g.Log, func() error {
				defer func() { <-free }()
				var errs []error
				for _, s := range some {
					if err := g.collect(ctx, s); err != nil {
						errs = append(errs, fmt.Errorf("%s: %w", s.Handle, err))
					}
				}
				return errors.Join(errs...)
			}))
		}
		for _, f := range collecting {
			if err := f.Wait(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// lockName returns the name of the lock that keeps other calls away.
func (g *Collection) lockName(s stale) string {
	if g.Plugin == protocol.CalicoIPAM || s.HostIf == "" {
		return s.Handle
	}
	return s.HostIf
}

// collect removes one stale container interface, unless a call for it is running. It deletes the records that lead to
// the rest last, so that if this call dies the next GC finds what remains.
func (g *Collection) collect(ctx context.Context, s stale) error {
	release, err := g.Locks.Try(addresses.InterfaceLock(g.lockName(s)))
	if err != nil && !errors.Is(err, os.ErrPermission) {
		g.Log.Info("leaving it: a call for it is at work", "handle", s.Handle, "error", err)
		return nil
	}
	if err == nil {
		defer release()
	}
	if isNew, err := g.isNew(ctx, s); err != nil || isNew {
		return err
	}
	r := addresses.Removal{ID: s.Identity, Addresses: true, Endpoint: g.Plugin == protocol.Calico, Blocks: s.blocks}
	l, leave, err := g.link(ctx, s, &r)
	if err != nil || leave {
		return err
	}
	g.Log.Info("collecting", "handle", s.Handle, "link", s.HostIf)
	if g.Delegate != nil { // call DEL: the plugin's own GC may do nothing, and host-local has none
		for _, id := range protocol.Sandboxes(s.Network, s.Handle) {
			if err := g.Delegate.Del(ctx, id); err != nil {
				return err
			}
		}
	}
	if l != nil {
		killpoint.Step("before link deleted")
		if err := link.DeleteFound(*l); err != nil {
			return protocol.Fail(protocol.CodeKernel, err, "try again")
		}
		killpoint.Step("link deleted")
	}
	if s.HostIf == "" || s.Alias != "" { // more than its link is known
		err := g.Etcd.Remove(ctx, r, nil)
		if used, ok := errors.AsType[*protocol.Error](err); ok && used.Code == protocol.CodeAddress {
			g.Log.Info("leaving addresses that an endpoint has: GC of calico takes both", "handle", s.Handle, "error", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	g.collected.Add(1)
	return nil
}

// link returns the host's end if it must be deleted, else nil. leave reports that everything else must stay too,
// because an endpoint uses the link.
func (g *Collection) link(ctx context.Context, s stale, r *addresses.Removal) (l *link.Link, leave bool, err error) {
	if s.HostIf == "" {
		return nil, false, nil
	}
	found, err := link.Find(s.HostIf)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case found.Alias != s.Alias && !halfMade(found) && !(s.unnamed && found.IsUnnamed()):
		r.Elsewhere = s.SameInterface(found.Alias)
		return nil, false, nil
	}
	if s.Key == (model.WorkloadEndpointKey{}) {
		// The interface is known by its alias alone, which may look like one of another network.
		owner, owned, err := g.Etcd.Owner(ctx, found.Name, s.Key)
		if err != nil {
			return nil, false, err
		}
		if owned {
			g.Log.Info("leaving a link that an endpoint lives on", "link", found.Name, "endpoint", owner)
			return nil, true, nil
		}
	}
	r.Linked = found.Alias == s.Alias
	return &found, false, nil
}

// halfMade reports whether the process that made the link died before it could set the alias. Other software, too,
// makes links whose names begin like ours.
func halfMade(l link.Link) bool {
	digits, ok := strings.CutPrefix(l.Name, protocol.HostPrefix)
	ours := ok && len(digits) == 11 && strings.Trim(digits, "0123456789abcdef") == ""
	return ours && l.IsUnnamed() && !l.Up
}

// isNew reports whether a container known only from a block was added after GC began: it has an endpoint by now that
// wasn't listed or, with another main plugin, its handle is newer than that.
func (g *Collection) isNew(ctx context.Context, s stale) (isNew bool, err error) {
	handle := model.HandleKey{ID: s.Handle}
	ranges := []model.Range{model.KeyRange(handle)}
	if g.Plugin == protocol.Calico {
		if s.Key == (model.WorkloadEndpointKey{}) || g.seen[s.Key] {
			return false, nil
		}
		ranges = []model.Range{model.KeyRange(s.Key)}
	}
	err = g.Etcd.Read(ctx, ranges, func(v *model.View) error {
		if g.Plugin == protocol.CalicoIPAM {
			isNew = v.Get(handle).Revision > g.began
			return nil
		}
		ep, _ := v.Get(s.Key).Value.(model.WorkloadEndpoint)
		isNew = ep.ContainerID != "" && ep.ContainerID == s.Container
		return nil
	})
	if isNew {
		g.Log.Info("leaving it: it was added since GC began", "handle", s.Handle)
	}
	return isNew, err
}
