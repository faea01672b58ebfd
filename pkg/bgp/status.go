// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// PeerStatus is the status of the session with a neighbour.
type PeerStatus struct {
	Address netip.Addr
	AS      model.ASNumber
	Kind    plan.NeighbourKind
	Host    string // our host of that name; "" = not a host of ours
	State   string // Idle … Established, Flooded, Refused
	Since   time.Time
	// Received is how many prefixes it has sent, Used how many learned routes go through it, Sent how many were sent to it.
	Received, Used, Sent int
	// Refused is how many prefixes it sends that are taken from no neighbour: a default route, and prefixes that this host
	// announces itself.
	Refused int
	// Trouble is the kind of problem that keeps the session from being up, as far as is known; "" = it is up, or nothing was
	// tried yet.
	Trouble Trouble
	// Error is the last error, kept when the session is up again; "" = none since the neighbour was added.
	Error   string
	ErrorAt time.Time
}

// Trouble is a kind of problem with a neighbour.
type Trouble string

const (
	troubleAS       Trouble = "as-number" // one side expects another number of the other
	troublePassword Trouble = "password"  // it isn't the neighbour's, or can't be read
	troubleNoAnswer Trouble = "no-answer" // it is connected but doesn't answer
	troubleFlood    Trouble = "flood"     // it sent too many routes
	troubleOther    Trouble = "other"     // it isn't there, refuses the connection, ended the session, …
)

// Troubles returns all kinds of trouble.
func Troubles() []Trouble {
	return []Trouble{troubleAS, troublePassword, troubleNoAnswer, troubleFlood, troubleOther}
}

// trouble returns the kind of the last error while there is no session.
func (e *sessionState) trouble() Trouble {
	switch {
	case e.state == Established, e.err == "":
		return ""
	case e.state == Flooded:
		return troubleFlood
	case strings.HasPrefix(e.err, wrongAS), e.err == refused:
		return troubleAS
	case strings.HasPrefix(e.err, noAnswer):
		return troubleNoAnswer
	case strings.Contains(e.err, "password"): // these texts are all ours
		return troublePassword
	}
	return troubleOther
}

// Status returns the status of all neighbours, sorted by address.
func (s *Speaker) Status(ctx context.Context) ([]PeerStatus, error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	list := s.sessions.status()
	if s.run == nil {
		return list, nil
	}
	received, sent, err := s.run.counts(ctx)
	if err != nil {
		return nil, err
	}
	used := s.learned.used()
	for i := range list {
		p := &list[i]
		if p.State != Established {
			continue
		}
		p.Received, p.Used = received[p.Address], used[p.Address]
		if s.run.filters.reflector {
			p.Sent = sent[p.Address]
			continue
		}
		for _, a := range s.run.advertise {
			if a.taken && sends(s.desired.Neighbours[p.Address], a.Advertisement, s.desired.Speaker.Communities) {
				p.Sent++
			}
		}
	}
	return list, nil
}

func (t *sessions) status() []PeerStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]PeerStatus, 0, len(t.table))
	for a, e := range t.table {
		list = append(list, PeerStatus{
			Address: a, AS: e.neighbour.AS, Kind: e.neighbour.Kind, Host: e.neighbour.Host,
			State: e.state, Since: e.since, Refused: e.refused, Trouble: e.trouble(), Error: e.err, ErrorAt: e.errAt,
		})
	}
	slices.SortFunc(list, func(a, b PeerStatus) int { return a.Address.Compare(b.Address) })
	return list
}

// counts asks the library how many prefixes neighbours have sent, and, only for a reflector, how many they were sent: the
// library must work that out, and what other hosts send is known.
func (r *running) counts(ctx context.Context) (received, sent map[netip.Addr]int, err error) {
	received, sent = make(map[netip.Addr]int), make(map[netip.Addr]int)
	err = r.srv.ListPeer(ctx, &api.ListPeerRequest{EnableAdvertised: r.filters.reflector}, func(p *api.Peer) {
		a, err := netip.ParseAddr(p.GetConf().GetNeighborAddress())
		if err != nil {
			return
		}
		for _, f := range p.GetAfiSafis() {
			received[a] += int(f.GetState().GetReceived())
			sent[a] += int(f.GetState().GetAdvertised())
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("ask for BGP neighbours: %w", err)
	}
	return received, sent, nil
}
