// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// What gobgp does (4.7 and 4.8, PrefixLimit): it counts all that a neighbour has sent with each of its messages.
// To reproduce: have a neighbour with a limit of 20,000 prefixes send them one by one (TestFloodOnWire, TestFlood).
// What it costs: minutes of a processor, in which no other session is served.
// What is done here: announcements are added up as they come, and only what would be too many is counted, at most once in
// countEvery.

// countEvery is the least time between two counts.
const countEvery = time.Second

// floodWatch is what is known of the number of prefixes that a neighbour has sent.
type floodWatch struct {
	counted   int       // when they were counted last
	announced int       // since then, those sent again among them
	last      time.Time // announcement
	countAt   time.Time // when to count; zero = they can't be too many
}

// announced adds what a neighbour sends.
func (t *sessions) announced(a netip.Addr, n int) {
	if n == 0 {
		return
	}
	t.mu.Lock()
	e := t.table[a]
	if e == nil {
		t.mu.Unlock()
		return
	}
	f, now := &e.flood, time.Now()
	f.announced += n
	f.last = now
	first := f.countAt.IsZero() && e.neighbour.MaxPrefixes > 0 && f.counted+f.announced > e.neighbour.MaxPrefixes
	if first {
		f.countAt = now
	}
	t.mu.Unlock()
	if first {
		t.wake()
	}
}

// suspects are the neighbours whose prefixes are to be counted now.
func (t *sessions) suspects(now time.Time) (list []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a, e := range t.table {
		if !e.flood.countAt.IsZero() && !now.Before(e.flood.countAt) && e.state == Established {
			e.flood.announced = 0
			list = append(list, a)
		}
	}
	return list
}

// count takes in how many prefixes a neighbour has sent. Its last messages may not be among
// them yet: it is counted again as long as it goes on.
func (t *sessions) count(a netip.Addr, n int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.table[a]
	if e == nil || e.state != Established {
		return
	}
	e.flood.counted = n
	e.flood.countAt = time.Time{}
	if now.Sub(e.flood.last) < countEvery {
		e.flood.countAt = now.Add(countEvery)
	}
	limit := e.neighbour.MaxPrefixes
	if limit == 0 || n <= limit {
		return
	}
	e.err = fmt.Sprintf("it sent %d routes, more than %d: cut off; let it send fewer, or raise the limit", n, limit)
	e.state, e.since, e.errAt, e.flood, e.refused = Flooded, now, now, floodWatch{}, nil
	t.log.Error("BGP neighbour floods", "neighbour", a, "as", e.neighbour.AS, "error", e.err)
}

// count counts what suspects have sent.
func (s *Speaker) count(ctx context.Context, now time.Time) error {
	var errs []error
	for _, a := range s.sessions.suspects(now) {
		family := &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
		if a.Is6() {
			family.Afi = api.Family_AFI_IP6
		}
		table, err := s.run.srv.GetTable(ctx, &api.GetTableRequest{
			TableType: api.TableType_TABLE_TYPE_ADJ_IN, Family: family, Name: a.String(),
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("count what BGP neighbour %s sent: %w", a, err))
			continue
		}
		s.sessions.count(a, int(table.GetNumPath()), now)
	}
	return errors.Join(errs...)
}
