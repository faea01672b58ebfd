// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// gobgp's own limit of prefixes (4.8, pkg/server/peer.go, isPrefixLimit) counts all of them with each message, which takes minutes of CPU
// time if they come one by one, and ends the session in such a way that its routes stay for the restart time (pkg/server/fsm.go,
// established). And no event names the prefixes that a policy rejects. So the speaker itself looks at what a neighbour has sent, at most
// once a second: whether it is too much, and which prefixes are never used.

// lookEvery is the minimum time between two looks, and lookShare how many times as long as it took the pause after a look is: the
// library does nothing else meanwhile.
const (
	lookEvery = time.Second
	lookShare = 50
)

// received is what a neighbour has sent.
type received struct {
	prefixes int
	looped   int            // routes of others that the library drops as loops
	refused  []netip.Prefix // prefixes that are taken from no neighbour
}

// noteUpdate records that a neighbour has sent something.
func (t *sessions) noteUpdate(a netip.Addr) {
	t.update(a, func(e *sessionState) {
		if e.lookAt.IsZero() {
			e.lookAt = time.Now().Add(max(lookEvery, e.lookPause))
			t.wake()
		}
	})
}

// look looks at what neighbours have sent since the last look.
func (s *Speaker) look(ctx context.Context, now time.Time) error {
	var errs []error
	for _, a := range s.sessions.matching(func(e *sessionState) bool {
		due := e.state == Established && !e.lookAt.IsZero() && !now.Before(e.lookAt)
		if due {
			e.lookAt = time.Time{}
		}
		return due
	}) {
		began := time.Now()
		has, err := s.run.received(ctx, a)
		s.sessions.update(a, func(e *sessionState) { e.lookPause = lookShare * time.Since(began) })
		if err != nil {
			errs = append(errs, fmt.Errorf("look at what BGP neighbour %s sent: %w", a, err))
			s.sessions.noteUpdate(a) // again
			continue
		}
		s.sessions.setReceived(a, has, now)
	}
	return errors.Join(errs...)
}

// received asks the library what a neighbour has sent.
func (r *running) received(ctx context.Context, a netip.Addr) (has received, err error) {
	family := &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	if a.Is6() {
		family.Afi = api.Family_AFI_IP6
	}
	table, err := r.srv.GetTable(ctx, &api.GetTableRequest{TableType: api.TableType_TABLE_TYPE_ADJ_IN, Family: family, Name: a.String()})
	if err != nil || table.GetNumPath() == 0 {
		return has, err
	}
	has.prefixes, has.looped = int(table.GetNumPath()), int(table.GetNumPath())-int(table.GetNumAccepted())
	suspects := []netip.Prefix{netip.PrefixFrom(unspecified(a), 0)}
	for p := range r.advertise {
		if p.Addr().Is4() == a.Is4() {
			suspects = append(suspects, p)
		}
	}
	err = lookUp(r.srv, a, slices.Values(suspects), func(p netip.Prefix, paths []*apiutil.Path) {
		if r.returned(paths[0].Attrs) {
			has.looped--
		} else {
			has.refused = append(has.refused, p)
		}
	})
	return has, err
}

// returned reports whether a path brings back a route that has been here: reflectors, and many switches, also send routes to
// where they came from. That is normal, and such a path is never used (RFC 4271, section 9; RFC 4456, section 8).
func (r *running) returned(attrs []bgp.PathAttributeInterface) bool {
	for _, a := range attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeOriginatorId:
			if a.Value == r.speaker.RouterID {
				return true
			}
		case *bgp.PathAttributeAsPath:
			for _, part := range a.Value {
				if slices.Contains(part.GetAS(), uint32(r.speaker.AS)) {
					return true
				}
			}
		}
	}
	return false
}

// setReceived cuts off a neighbour that sends too much, and logs, once in a session, which routes are not taken.
func (t *sessions) setReceived(a netip.Addr, has received, now time.Time) {
	t.update(a, func(e *sessionState) {
		if e.state != Established {
			return
		}
		if limit := e.neighbour.MaxPrefixes; limit > 0 && has.prefixes > limit {
			e.err = fmt.Sprintf("it sent %d routes, more than %d: cut off; let it send fewer, or raise the limit", has.prefixes, limit)
			e.state, e.since, e.errAt, e.progress = Flooded, now, now, progress{}
			t.log.Error("BGP neighbour floods", "neighbour", a, "as", e.neighbour.AS, "error", e.err)
			return
		}
		e.refused = len(has.refused)
		for _, p := range has.refused {
			why := "this host announces the prefix itself: find out who else does, behind that neighbour"
			if p.Bits() == 0 {
				why = "a default route would replace the host's own: let it send none"
			}
			if !slices.Contains(e.reasons, why) {
				e.reasons = append(e.reasons, why)
				t.log.Warn("BGP neighbour sends a route that is not taken", "neighbour", a, "as", e.neighbour.AS, "prefix", p, "reason", why)
			}
		}
		// Hosts with the same AS number don't learn of one another through a neighbour with another number. If there is a mesh
		// as well, that doesn't matter.
		if has.looped > 0 && !e.looped {
			e.looped = true
			t.log.Info("BGP neighbour sends routes of others with this host's AS number in their path: they are not taken from it",
				"neighbour", a, "as", e.neighbour.AS, "routes", has.looped,
				"advice", "hosts that are to hear of one another by that neighbour need numbers of their own, or it must replace them")
		}
	})
}
