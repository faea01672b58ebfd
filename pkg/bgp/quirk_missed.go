// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// What gobgp does (4.8, pkg/server/server.go, handleFSMMessage, and pkg/server/fsm.go, loop): for a new session it reads its table, says
// that the session is up, and only then sends changes to the session. Changes in between are never sent to it.
// To reproduce: let 40 clients of a reflector connect at once, each of which announces and withdraws some prefixes
// (TestChangesWhileSessionsComeUp).
// What it costs: a route that was added is missing at that neighbour, and one that was withdrawn stays there, for as long as the session
// lasts.
// What is done here: what changed while a session came up is sent again.

// behind is how late the news of other neighbours' changes may come.
const behind = time.Second

// kept is how long changes are kept: longer than a session takes to come up.
const kept = 3 * mute

// changes records when the routes sent to neighbours last changed.
type changes struct {
	mu       sync.Mutex
	prefixes map[netip.Prefix]time.Time
	pruned   time.Time
	last     time.Time   // change of prefixes, or of the filters
	reflects atomic.Bool // neighbours are sent routes of others
}

// note records that prefixes changed, or, if there are none, the filters.
func (c *changes) note(at time.Time, prefixes ...netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = at
	if at.Sub(c.pruned) > kept {
		maps.DeleteFunc(c.prefixes, func(_ netip.Prefix, when time.Time) bool { return at.Sub(when) > kept })
		c.pruned = at
	}
	if c.prefixes == nil {
		c.prefixes = make(map[netip.Prefix]time.Time)
	}
	for _, p := range prefixes {
		c.prefixes[p] = at
	}
}

// after returns the prefixes that changed at the time or later, and whether anything did, the filters included.
func (c *changes) after(when time.Time) (list []netip.Prefix, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, at := range c.prefixes {
		if !at.Before(when) {
			list = append(list, p)
		}
	}
	return list, !c.last.Before(when)
}

// followUp turns on keep-alives for sessions that have come up, and sends their neighbours what changed meanwhile. It waits while the
// library defers its updates because this host has restarted and hasn't heard from all neighbours yet (RFC 4724, section 4.1): a
// neighbour would take routes that come earlier for all that there are.
func (s *Speaker) followUp(ctx context.Context, now time.Time) error {
	r := s.run
	var ready []netip.Addr
	first := now // when the first of them began to come up
	later := func(e *sessionState) { e.followUpAt = now.Add(behind) }
	for _, a := range s.sessions.matching(func(e *sessionState) bool {
		return e.state == Established && !e.followUpAt.IsZero() && !now.Before(e.followUpAt)
	}) {
		if up, deferring := r.isReady(ctx, a); !up || deferring {
			s.sessions.update(a, later)
			continue
		}
		ready = append(ready, a)
		s.sessions.update(a, func(e *sessionState) {
			e.followUpAt = time.Time{}
			if e.comesUp.Before(first) {
				first = e.comesUp
			}
		})
	}
	err := keepAlive(ready)
	if missed, some := r.changes.after(first); some && len(ready) > 0 {
		failed := r.resend(ctx, ready, missed)
		for _, a := range ready {
			if failed != nil {
				s.sessions.update(a, later)
			}
		}
		err = errors.Join(err, failed)
	}
	return err
}

// resend sends neighbours all of their routes. The library sends the withdrawal of a prefix only if its table had it: so
// prefixes that are gone are added for a moment, marked for no neighbour, and deleted, which is sent to all.
func (r *running) resend(ctx context.Context, to []netip.Addr, changed []netip.Prefix) error {
	gone, err := r.gone(changed)
	errs := []error{err}
	for _, a := range to {
		reset := &api.ResetPeerRequest{Address: a.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT}
		if err := r.srv.ResetPeer(ctx, reset); err != nil {
			errs = append(errs, fmt.Errorf("neighbour %s: %w", a, err))
		}
	}
	var marked []*apiutil.Path
	for _, p := range gone {
		path, err := newPath(p, unspecified(p.Addr()), bgp.BGP_ORIGIN_ATTR_TYPE_EGP)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		marked = append(marked, path)
	}
	if len(marked) > 0 {
		_, err := r.srv.AddPath(apiutil.AddPathRequest{Paths: marked})
		errs = append(errs, err, r.srv.DeletePath(apiutil.DeletePathRequest{Paths: marked}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("advertise again what changed while sessions came up: %w", err)
	}
	return nil
}

// gone returns those of the prefixes that are not in the library's table.
func (r *running) gone(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	missing := make(map[netip.Prefix]bool, len(prefixes))
	for _, p := range prefixes {
		missing[p] = true
	}
	err := lookUp(r.srv, netip.Addr{}, maps.Keys(missing), func(p netip.Prefix, _ []*apiutil.Path) { delete(missing, p) })
	return slices.Collect(maps.Keys(missing)), err
}

// unspecified returns the unspecified address of the same family.
func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
