// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/plan"
)

// Preferences of paths (RFC 4271, section 5.1.5). Ours are the best in our own table whatever others send; they are
// advertised with the default.
const (
	ownPreference     = math.MaxUint32
	defaultPreference = 100
)

// running is a running speaker, and the state that it has been given.
type running struct {
	log     *slog.Logger
	srv     *server.BgpServer
	watch   *watch
	speaker plan.Speaker

	filters   filters
	filtered  bool                   // the policies are in force
	wanted    map[netip.Addr]session // as desired
	sessions  map[netip.Addr]session // as they are
	files     map[netip.Addr]string  // the password files of wanted; "" = none
	set       bool                   // all but the sessions is as desired
	regroups  bool                   // an established session must become a client's, or stop being one
	advertise map[netip.Prefix]advertised
	changes   changes
	// restarting: neighbours of the first Apply are told that our routes have been kept.
	restarting bool
	// fresh: no neighbour had reflected routes from us before this start, so there is none to wait for.
	fresh bool
}

// advertised is a prefix of ours that was given to the library. If the library refused several prefixes given at once, some
// may still be in its table.
type advertised struct {
	plan.Advertisement
	taken bool
}

// start starts the library, which then listens.
func (s *Speaker) start(ctx context.Context, speaker plan.Speaker) (*running, error) {
	tap := &libraryLog{Handler: s.log.Handler(), sessions: &s.sessions}
	r := &running{
		log: s.log, srv: server.NewBgpServer(server.LoggerOption(slog.New(tap), nil)), speaker: speaker,
		sessions:  make(map[netip.Addr]session),
		files:     make(map[netip.Addr]string),
		advertise: make(map[netip.Prefix]advertised),
	}
	go r.srv.Serve()
	err := r.srv.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn:              uint32(speaker.AS),
		RouterId:         speaker.RouterID.String(),
		ListenPort:       int32(speaker.ListenPort),
		ListenAddresses:  listenAddresses(speaker.Listen),
		Families:         []uint32{familyIPv4, familyIPv6},
		UseMultiplePaths: true,
	}})
	if err != nil {
		return nil, errors.Join(&ListenError{Port: speaker.ListenPort, Err: err}, r.stop(ctx, false))
	}
	if r.watch, err = newWatch(r.srv, speaker.AS, &s.sessions, &s.learned, &r.changes); err != nil {
		return nil, errors.Join(err, r.stop(ctx, false))
	}
	return r, nil
}

// The library's numbers for families when it starts (oc.IntToAfiSafiTypeMap).
const (
	familyIPv4 = 0
	familyIPv6 = 1
)

// listenAddresses returns those given, or all: IPv6 only if the host has it.
func listenAddresses(given []netip.Addr) (list []string) {
	for _, a := range given {
		list = append(list, a.String())
	}
	if len(list) > 0 {
		return list
	}
	list = []string{netip.IPv4Unspecified().String()}
	if fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd) // nothing was done with it
		list = append(list, netip.IPv6Unspecified().String())
	}
	return list
}

// stop ends all sessions: gracefully, so that neighbours keep our routes, or not.
func (r *running) stop(ctx context.Context, graceful bool) error {
	if r.watch != nil {
		r.watch.stop()
	}
	if !graceful {
		r.shut(ctx)
	}
	err := r.srv.StopBgp(ctx, &api.StopBgpRequest{AllowGracefulRestart: graceful})
	r.srv.Stop() // ends what StopBgp leaves running
	return err
}

// isReady asks the library itself whether a session is up, and whether it defers its updates because this host has restarted and
// still waits for other neighbours (RFC 4724, section 4.1).
func (r *running) isReady(ctx context.Context, a netip.Addr) (up, deferring bool) {
	err := r.srv.ListPeer(ctx, &api.ListPeerRequest{Address: a.String()}, func(p *api.Peer) {
		up = up || p.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
		deferring = deferring || p.GetGracefulRestart().GetLocalRestarting()
	})
	return err == nil && up, deferring
}

// needsRestart reports whether a change requires restarting the library. Except for a change of the port, sessions would have
// to end anyhow.
func needsRestart(a, b plan.Speaker) bool {
	return a.AS != b.AS || a.RouterID != b.RouterID || a.ListenPort != b.ListenPort || !slices.Equal(a.Listen, b.Listen)
}

// setFilters puts the policies in force. If they changed, received and sent routes are looked at again.
func (r *running) setFilters(ctx context.Context, f filters) error {
	in, out := r.filters.sameImport(f), r.filters.sameExport(f)
	if r.filtered && in && out {
		return nil
	}
	first := !r.filtered
	if err := r.srv.SetPolicies(ctx, f.policies()); err != nil {
		return fmt.Errorf("set the policies: %w", err)
	}
	if first {
		for _, a := range assignments() {
			if err := r.srv.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: a}); err != nil {
				return fmt.Errorf("set the policies: %w", err)
			}
		}
		in, out = true, true // there is nothing to look at yet
	}
	r.filters, r.filtered = f, true
	if !out || first {
		r.changes.reflects.Store(f.reflector)
		defer func() { r.changes.note(time.Now()) }()
	}
	reset := &api.ResetPeerRequest{Address: "all", Soft: true}
	switch {
	case in && out:
		return nil
	case in:
		reset.Direction = api.ResetPeerRequest_DIRECTION_OUT
	case out:
		reset.Direction = api.ResetPeerRequest_DIRECTION_IN
	default:
		reset.Direction = api.ResetPeerRequest_DIRECTION_BOTH
	}
	if err := r.srv.ResetPeer(ctx, reset); err != nil {
		return fmt.Errorf("look at all routes again: %w", err)
	}
	return nil
}

// setAdvertisements makes the table hold these prefixes of ours. The next call retries what fails.
func (r *running) setAdvertisements(wanted map[netip.Prefix]plan.Advertisement) error {
	var add, remove []*apiutil.Path
	var added, removed []netip.Prefix
	var errs []error
	for p, a := range wanted {
		if r.advertise[p] == (advertised{a, true}) {
			continue
		}
		path, err := pathOf(a)
		if err != nil {
			errs = append(errs, fmt.Errorf("advertise %s: %w", p, err))
			continue
		}
		add, added = append(add, path), append(added, p)
		r.advertise[p] = advertised{a, false}
	}
	for p, a := range r.advertise {
		if _, ok := wanted[p]; ok {
			continue
		}
		path, err := pathOf(a.Advertisement)
		if err != nil {
			errs = append(errs, fmt.Errorf("withdraw %s: %w", p, err))
			continue
		}
		remove, removed = append(remove, path), append(removed, p)
	}
	if len(add) > 0 {
		if _, err := r.srv.AddPath(apiutil.AddPathRequest{Paths: add}); err != nil {
			errs = append(errs, fmt.Errorf("advertise: %w", err))
		} else {
			for _, p := range added {
				r.advertise[p] = advertised{wanted[p], true}
			}
		}
	}
	if len(remove) > 0 {
		if err := r.srv.DeletePath(apiutil.DeletePathRequest{Paths: remove}); err != nil {
			errs = append(errs, fmt.Errorf("withdraw: %w", err))
		} else {
			for _, p := range removed {
				delete(r.advertise, p)
			}
		}
	}
	if changed := append(added, removed...); len(changed) > 0 {
		r.changes.note(time.Now(), changed...)
	}
	return errors.Join(errs...)
}

// pathOf returns an advertisement in the library's form.
func pathOf(a plan.Advertisement) (*apiutil.Path, error) {
	switch {
	case !a.Prefix.IsValid() || a.Prefix != a.Prefix.Masked():
		return nil, errors.New("want a network prefix")
	case !plain(a.NextHop) || a.NextHop.Is4() != a.Prefix.Addr().Is4():
		return nil, fmt.Errorf("the next hop %s is not of its family: this host needs an address of it", a.NextHop)
	}
	if a.NoMesh {
		return newPath(a.Prefix, a.NextHop, bgp.BGP_ORIGIN_ATTR_TYPE_INCOMPLETE)
	}
	return newPath(a.Prefix, a.NextHop, bgp.BGP_ORIGIN_ATTR_TYPE_IGP)
}

// newPath returns a path of ours; its ORIGIN tells the export policy whom it is for.
func newPath(prefix netip.Prefix, nextHop netip.Addr, origin uint8) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(prefix)
	if err != nil {
		return nil, err
	}
	attrs := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(origin), bgp.NewPathAttributeLocalPref(ownPreference)}
	family := familyOf(prefix.Addr())
	if prefix.Addr().Is4() {
		hop, err := bgp.NewPathAttributeNextHop(nextHop)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, hop)
	} else {
		hop, err := bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, nextHop)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, hop)
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attrs, Age: time.Now().Unix()}, nil
}

// add sets up a session.
func (r *running) add(ctx context.Context, s session) error {
	p := s.peer(r.restarting)
	if r.fresh && p.GracefulRestart != nil {
		p.GracefulRestart.DeferralTime = leastDeferral
	}
	if err := r.srv.AddPeer(ctx, &api.AddPeerRequest{Peer: p}); err != nil {
		return err
	}
	r.sessions[s.address] = s
	return nil
}
