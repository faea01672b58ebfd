// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// A watch turns the library's events into learned routes. Events say only which prefixes to look at; the table gives their
// state.
type watch struct {
	srv      *server.BgpServer
	as       model.ASNumber // ours
	sessions *sessions
	learned  *learned

	mu    sync.Mutex
	dirty map[netip.Prefix]struct{}
	done  []netip.Addr // neighbours that have sent all
	wake  chan struct{}

	cancel context.CancelFunc
	ended  chan struct{}
}

func newWatch(srv *server.BgpServer, as model.ASNumber, sessions *sessions, learned *learned, changes *changes) (*watch, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{
		srv: srv, as: as, sessions: sessions, learned: learned,
		dirty: make(map[netip.Prefix]struct{}), wake: make(chan struct{}, 1),
		cancel: cancel, ended: make(chan struct{}),
	}
	err := srv.WatchEvent(ctx, server.WatchEventMessageCallbacks{
		OnBestPath: func(paths []*apiutil.Path, at time.Time) {
			w.mu.Lock()
			defer w.mu.Unlock()
			var others []netip.Prefix
			for _, p := range paths {
				if prefix, ok := prefixOf(p.Nlri); ok {
					w.dirty[prefix] = struct{}{}
					if p.PeerAddress.IsValid() {
						others = append(others, prefix)
					}
				}
			}
			if len(others) > 0 && changes.reflects.Load() {
				changes.note(at, others...)
			}
			w.signal()
		},
		OnPathEor: func(p *apiutil.Path, _ time.Time) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.done = append(w.done, p.PeerAddress)
			w.signal()
		},
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
			if e.Type == apiutil.PEER_EVENT_STATE && ctx.Err() == nil {
				sessions.event(e, at)
			}
		},
	}, server.WatchBestPath(true), server.WatchEor(true), server.WatchPeer())
	if err != nil {
		cancel()
		return nil, err
	}
	go w.read(ctx)
	learned.setAgain(w.again)
	return w, nil
}

// stop ends the watch; learned routes stay.
func (w *watch) stop() {
	w.learned.setAgain(nil)
	w.cancel()
	<-w.ended
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// again looks at prefixes that no event named.
func (w *watch) again(prefixes []netip.Prefix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range prefixes {
		w.dirty[p] = struct{}{}
	}
	w.signal()
}

// read looks at prefixes that events named. A neighbour is recorded as having sent all only after its routes are.
func (w *watch) read(ctx context.Context) {
	defer close(w.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		w.mu.Lock()
		dirty, done := w.dirty, w.done
		w.dirty, w.done = make(map[netip.Prefix]struct{}), nil
		w.mu.Unlock()
		routes := w.look(dirty)
		if ctx.Err() != nil {
			return
		}
		w.learned.set(routes)
		for _, a := range done {
			w.sessions.update(a, func(e *sessionState) { e.sentAll = true })
		}
		if len(done) > 0 {
			w.sessions.wake()
		}
	}
}

// look reads prefixes from the table.
func (w *watch) look(prefixes map[netip.Prefix]struct{}) []plan.Learned {
	found := make(map[netip.Prefix]plan.Learned, len(prefixes))
	for p := range prefixes {
		found[p] = plan.Learned{Prefix: p}
	}
	// It fails only if the speaker has been stopped: then the result doesn't matter.
	_ = lookUp(w.srv, netip.Addr{}, maps.Keys(prefixes), func(p netip.Prefix, paths []*apiutil.Path) {
		found[p] = plan.Learned{Prefix: p, Paths: pathsOf(paths, w.as)}
	})
	return slices.Collect(maps.Values(found))
}

// lookUp calls each for those of the prefixes, and their paths, that are in the table, or, if from is valid, in what that
// neighbour sent.
func lookUp(srv *server.BgpServer, from netip.Addr, prefixes iter.Seq[netip.Prefix], each func(netip.Prefix, []*apiutil.Path)) error {
	lookups := make(map[bgp.Family][]*apiutil.LookupPrefix)
	for p := range prefixes {
		lookups[familyOf(p.Addr())] = append(lookups[familyOf(p.Addr())], &apiutil.LookupPrefix{Prefix: p.String()})
	}
	request := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL}
	if from.IsValid() {
		request = apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_ADJ_IN, Name: from.String()}
	}
	for request.Family, request.Prefixes = range lookups {
		err := srv.ListPath(request, func(nlri bgp.NLRI, paths []*apiutil.Path) {
			if p, ok := prefixOf(nlri); ok {
				each(p, paths)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nextHop returns the path's next hop, the zero Addr if it has none.
func nextHop(p *apiutil.Path) netip.Addr {
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeNextHop:
			return a.Value
		case *bgp.PathAttributeMpReachNLRI:
			return a.Nexthop.Unmap()
		}
	}
	return netip.Addr{}
}

func prefixOf(nlri bgp.NLRI) (netip.Prefix, bool) {
	p, ok := nlri.(*bgp.IPAddrPrefix)
	if !ok || !p.Prefix.IsValid() {
		return netip.Prefix{}, false
	}
	return p.Prefix.Masked(), true
}

func familyOf(a netip.Addr) bgp.Family {
	if a.Is4() {
		return bgp.RF_IPv4_UC
	}
	return bgp.RF_IPv6_UC
}
