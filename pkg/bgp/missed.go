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
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// What gobgp does (4.7 and 4.8, fsmHandler.loop): for a new session it reads its table, says that the session is up, and only
// then counts the session among those that changes are sent to. What changes in between goes to nobody.
// To reproduce: let 40 clients of a reflector connect at once, each of which announces and withdraws some prefixes
// (TestChangesWhileSessionsComeUp). What it costs: a route that came is missing at that neighbour, and one that went stays
// there, for as long as the session lasts.
// What is done here: what changed while a session came up is said again.

// behind is how late news of what other neighbours changed may come.
const behind = time.Second

// changes are when what neighbours are told last changed, kept for longer than sessions take to come up.
type changes struct {
	mu          sync.Mutex
	now, before map[netip.Prefix]time.Time
	since       time.Time // when now began
	filters     time.Time
	reflects    bool // neighbours are told what others say
}

// note notes that prefixes changed.
func (c *changes) note(at time.Time, prefixes ...netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil || at.Sub(c.since) > 3*mute {
		c.now, c.before, c.since = make(map[netip.Prefix]time.Time), c.now, at
	}
	for _, p := range prefixes {
		c.now[p] = at
	}
}

// noteFilters notes that the filters of what neighbours are told changed.
func (c *changes) noteFilters(at time.Time, reflects bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filters, c.reflects = at, reflects
}

// noteOthers notes that a prefix may have changed by what a neighbour said.
func (c *changes) noteOthers(at time.Time, p netip.Prefix) {
	c.mu.Lock()
	reflects := c.reflects
	c.mu.Unlock()
	if reflects {
		c.note(at, p)
	}
}

// after are the prefixes that changed at a time or later, and whether anything did.
func (c *changes) after(when time.Time) (list []netip.Prefix, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range []map[netip.Prefix]time.Time{c.now, c.before} {
		for p, at := range m {
			if !at.Before(when) {
				list = append(list, p)
			}
		}
	}
	return list, len(list) > 0 || !c.filters.Before(when)
}

// An opening is a session that comes up.
type opening struct {
	from   time.Time // before the table was read for it
	due    time.Time // when to look what it missed; zero = not
	looked bool
}

// comingUp notes that a session is about to be up.
func (t *sessions) comingUp(a netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.table[a]; e != nil {
		e.opening = opening{from: time.Now()}
	}
}

// openings are the sessions that it is time to look at.
func (t *sessions) openings(now time.Time) map[netip.Addr]opening {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make(map[netip.Addr]opening)
	for a, e := range t.table {
		if e.state == Established && !e.opening.due.IsZero() && !now.Before(e.opening.due) {
			list[a] = e.opening
		}
	}
	return list
}

// setOpening notes what came of a look. The session may have ended meanwhile, and another have come.
func (t *sessions) setOpening(a netip.Addr, was, is opening) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.table[a]; e != nil && e.opening == was {
		e.opening = is
	}
}

// sayMissed tells neighbours whose sessions have come up what changed meanwhile.
func (s *Speaker) sayMissed(ctx context.Context, now time.Time) error {
	r := s.run
	var missed []netip.Prefix
	var by []netip.Addr
	looks := s.sessions.openings(now)
	done := make(map[netip.Addr]opening, len(looks))
	for a, is := range looks {
		up, deferring := r.isReady(ctx, a)
		if !up || deferring {
			is.due = now.Add(10 * time.Millisecond)
			if deferring { // it would take what we have for all that will come
				is.due = now.Add(behind)
			}
			s.sessions.setOpening(a, looks[a], is)
			continue
		}
		if list, some := r.changes.after(is.from); some {
			missed, by = append(missed, list...), append(by, a)
		}
		is.due = time.Time{}
		if r.filters.reflector && !is.looked {
			is.due = now.Add(behind)
		}
		is.looked = true
		done[a] = is
	}
	var err error
	if len(by) > 0 {
		err = r.sayAgain(ctx, by, missed)
	}
	for a, is := range done {
		if err != nil { // again
			is = looks[a]
			is.due = now.Add(behind)
		}
		s.sessions.setOpening(a, looks[a], is)
	}
	return err
}

// sayAgain sends neighbours all that is for them. The library tells that a prefix is gone only where its
// table had it: they are put there for a moment, marked to go to nobody, and taken away, which all are told.
func (r *running) sayAgain(ctx context.Context, to []netip.Addr, changed []netip.Prefix) error {
	var errs []error
	for _, a := range to {
		reset := &api.ResetPeerRequest{Address: a.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT}
		if err := r.srv.ResetPeer(ctx, reset); err != nil {
			errs = append(errs, fmt.Errorf("neighbour %s: %w", a, err))
		}
	}
	gone, err := r.gone(changed)
	errs = append(errs, err)
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

// gone are those of the prefixes that the library's table doesn't have.
func (r *running) gone(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	missing := make(map[netip.Prefix]bool, len(prefixes))
	for _, p := range prefixes {
		missing[p] = true
	}
	err := lookUp(r.srv, maps.Keys(missing), func(p netip.Prefix, _ []*apiutil.Path) { delete(missing, p) })
	return slices.Collect(maps.Keys(missing)), err
}

// unspecified is the address of the same family that is none.
func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
