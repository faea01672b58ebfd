// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/plan"
)

const (
	// leaveTime is how long a tunnel that is no longer needed takes packets yet: other
	// hosts send through theirs until they have heard of it.
	leaveTime = 10 * time.Second
	// openTime is how long a tunnel that is new takes packets before any are sent: as long as
	// other hosts may take to make theirs. What it is for BGP withdraws later yet (withdraw.go).
	openTime = 250 * time.Millisecond
)

// leaving is a tunnel that is no longer needed.
type leaving struct {
	tunnel plan.Tunnel
	until  time.Time
}

// opens says whether the changes bring a tunnel that takes no packets yet. It comes before leave.
func (r *Router) opens(c plan.Changes) bool {
	if c.Devices == nil {
		return false
	}
	return slices.ContainsFunc(c.Devices.Tunnels, func(t plan.Tunnel) bool {
		return !slices.ContainsFunc(r.tunnels(time.Time{}), func(have plan.Tunnel) bool { return have.Kind == t.Kind && have.Port == t.Port })
	})
}

// openTunnels has the tunnels of the changes take packets, and waits. What etcd says meanwhile comes with these changes: a
// tunnel that it opens takes packets at once, as other hosts may have heard of both together.
func (r *Router) openTunnels(ctx context.Context, c plan.Changes) plan.Changes {
	defer func() { r.opening = false }()
	r.openNow(ctx, c)
	wait := time.NewTimer(openTime)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return c
		case <-wait.C:
			return c
		case <-r.inbox.Wake:
		}
		r.takeIn()
		next, opens := r.decide()
		r.announce(ctx, next, false)
		c = overlay(c, next)
		if opens {
			r.wish()
			r.openNow(ctx, next)
			wait.Reset(openTime)
		}
	}
}

// openNow makes tunnels, and who is at their other ends. All else that there is to do comes after.
func (r *Router) openNow(ctx context.Context, c plan.Changes) {
	whole := r.whole
	r.whole = false
	added := maps.Clone(c.Remotes)
	maps.DeleteFunc(added, func(_ plan.RemoteID, r *plan.Remote) bool { return r == nil })
	r.program(ctx, plan.Changes{Devices: c.Devices, Remotes: added})
	r.whole = r.whole || whole
}

// leave keeps the tunnels that the changes end for a while. It comes before the changes are applied.
func (r *Router) leave(c plan.Changes, now time.Time) plan.Changes {
	if c.Devices != nil {
		for _, t := range r.state.Tunnels {
			r.leaves[t.Kind] = leaving{t, now.Add(leaveTime)}
			r.left.Reset(leaveTime)
		}
		for _, t := range c.Devices.Tunnels {
			delete(r.leaves, t.Kind)
		}
		return c
	}
	for _, l := range r.leaves {
		if !now.Before(l.until) {
			c.Devices = &plan.Devices{Tunnels: r.state.Tunnels, Releases: r.state.Releases}
		}
	}
	return c
}

// tunnels are those that there shall be in the kernel now. One that leaves has no address,
// which another may get, once no route goes by it: with the address the kernel drops these.
func (r *Router) tunnels(now time.Time) []plan.Tunnel {
	all := slices.Clone(r.state.Tunnels)
	for _, l := range r.leaves {
		if now.Before(l.until) {
			if !r.opening {
				l.tunnel.Addr = netip.Addr{}
			}
			all = append(all, l.tunnel)
		}
	}
	slices.SortFunc(all, func(a, b plan.Tunnel) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}

// forget forgets the tunnels that are gone, which the firewall knows until then.
func (r *Router) forget(ctx context.Context, now time.Time) {
	before := len(r.leaves)
	maps.DeleteFunc(r.leaves, func(_ plan.TunnelKind, l leaving) bool { return !r.whole && !now.Before(l.until) })
	if len(r.leaves) < before {
		r.tellLoop(ctx)
	}
}
