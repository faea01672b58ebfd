// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// remove ends sessions and forgets the routes that they brought.
func (r *running) remove(ctx context.Context, list ...session) error {
	if len(list) == 0 {
		return nil
	}
	addresses := make([]netip.Addr, len(list))
	for i, s := range list {
		addresses[i] = s.address
		delete(r.sessions, s.address)
	}
	r.shut(ctx, addresses...)
	var errs []error
	for _, s := range list {
		errs = append(errs, r.forget(ctx, s))
	}
	return errors.Join(errs...)
}

// forget removes a neighbour from the library.
func (r *running) forget(ctx context.Context, s session) error {
	if s.password != "" {
		// What gobgp does (4.8, pkg/server/server.go, DeletePeer): the listening socket keeps the password (TCP_MD5SIG) of a deleted
		// neighbour, so that it can't connect again without one (TestPassword). The socket drops the password of a neighbour that is
		// changed to have none.
		s.password = ""
		open := s.peer(false)
		open.Conf.AdminDown = true // so that it opens no session
		if _, err := r.srv.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: open}); err != nil {
			return err
		}
	}
	return r.srv.DeletePeer(ctx, &api.DeletePeerRequest{Address: s.address.String()})
}

// shut ends the sessions with some neighbours, or with all if none are named, and waits, for 2 s at most, until they have
// ended.
//
// What gobgp does (4.8, pkg/server/server.go, stopNeighbor and StopBgp): it doesn't wait for work of the session in progress.
// To reproduce: delete a neighbour while it sends routes (TestFloodOnWire).
// What it costs: what is read meanwhile stays in the table for good, connections that are no longer read stay open, and neighbours take
// a connection that just breaks for a restart.
func (r *running) shut(ctx context.Context, which ...netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	address := "" // all
	if len(which) == 1 {
		address = which[0].String()
	}
	if len(which) == 0 {
		which = slices.Collect(maps.Keys(r.sessions))
	}
	waiting := make(map[netip.Addr]bool, len(which))
	for _, a := range which {
		waiting[a] = true
		// It fails if there is no such neighbour, or nothing runs: then there is no session.
		_ = r.srv.DisablePeer(ctx, &api.DisablePeerRequest{Address: a.String()})
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		up := false
		err := r.srv.ListPeer(ctx, &api.ListPeerRequest{Address: address}, func(p *api.Peer) {
			a, err := netip.ParseAddr(p.GetConf().GetNeighborAddress())
			up = up || err == nil && waiting[a] && !isShut(p.GetState())
		})
		if err != nil || !up {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// isShut reports whether the library is done with a session, and opens no other.
func isShut(s *api.PeerState) bool {
	return s.GetSessionState() == api.PeerState_SESSION_STATE_IDLE && s.GetAdminState() == api.PeerState_ADMIN_STATE_DOWN
}
