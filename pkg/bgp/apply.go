// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/calico-go/calico/pkg/plan"
)

// learnTime is how long neighbours have to send their routes if no restart time is set.
const learnTime = 30 * time.Second

// Apply brings the speaker to the desired state. The error names what cannot be done; the rest is done. A neighbour whose
// settings are wrong has no session, or keeps the one it has.
//
// Times take effect with the next session: a session in progress isn't ended for them.
func (s *Speaker) Apply(ctx context.Context, desired Desired) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.closed {
		return errClosed
	}
	s.again = false
	if desired.Speaker.AS == 0 {
		return s.silence(ctx)
	}
	if err := check(desired.Speaker); err != nil {
		return err
	}
	var busy error
	if s.run != nil && s.run.speaker.ListenPort != desired.Speaker.ListenPort {
		if busy = tryPort(desired.Speaker); busy != nil { // sessions continue on the current port
			desired.Speaker.Listen, desired.Speaker.ListenPort = s.run.speaker.Listen, s.run.speaker.ListenPort
		}
	}
	s.desired = Desired{desired.Speaker, maps.Clone(desired.Neighbours), maps.Clone(desired.Advertisements)}
	if s.run != nil && needsRestart(s.run.speaker, desired.Speaker) {
		graceful := s.run.speaker.AS == desired.Speaker.AS && s.run.speaker.RouterID == desired.Speaker.RouterID
		if err := s.halt(ctx, graceful); err != nil {
			return err
		}
	}
	err := s.reconcile(ctx)
	if err == nil {
		err = s.regroup(ctx)
	}
	s.signal() // tend sets its alarm
	return errors.Join(busy, err)
}

// reconcile brings a running speaker to the desired state, or starts one.
func (s *Speaker) reconcile(ctx context.Context) error {
	if s.run == nil {
		r, err := s.start(ctx, s.desired.Speaker)
		if err != nil {
			s.learned.clear() // the next try may be far off
			return err
		}
		s.run = r
		r.restarting, r.fresh = true, s.fresh
		s.learned.setComplete(false)
		wait := s.desired.Speaker.RestartTime
		if wait <= 0 {
			wait = learnTime
		}
		s.deadline = time.Now().Add(wait)
	}
	err := s.difference(ctx)
	s.run.restarting, s.fresh = false, false
	return err
}

// regroup restarts all sessions gracefully if an established one must become a route reflector client's, or stop being one.
// The library can't change that for a session, nor end a single one so that its routes stay. regroup waits for sessions that
// are coming up: neighbours forget the routes of a speaker that restarts again before that.
func (s *Speaker) regroup(ctx context.Context) error {
	if !s.run.regroups || !s.sessions.settled(time.Now()) {
		return nil
	}
	// Password files may have changed since they were read, and the restart would use the new passwords.
	if err := s.difference(ctx); err != nil || !s.run.regroups {
		return err
	}
	s.fresh = !s.reflects()
	if err := s.halt(ctx, true); err != nil {
		return err
	}
	return s.reconcile(ctx)
}

// reflects reports whether a neighbour may have routes of others from us.
func (s *Speaker) reflects() bool {
	for a, has := range s.run.sessions {
		if s.sessions.get(a).state == Established && has.clusterID.IsValid() {
			return true
		}
	}
	return false
}

// tryPort returns why BGP can't listen at the speaker's port, nil if it can. The port must differ from the current one.
func tryPort(s plan.Speaker) error {
	for _, a := range listenAddresses(s.Listen) {
		network := "tcp4"
		if ip, err := netip.ParseAddr(a); err == nil && ip.Is6() {
			network = "tcp6"
		}
		l, err := net.Listen(network, net.JoinHostPort(a, strconv.Itoa(int(s.ListenPort))))
		if err != nil {
			return &ListenError{s.ListenPort, err, true}
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("BGP stays at its former port: %w", err)
		}
	}
	return nil
}

// check rejects a speaker that the library couldn't handle.
func check(s plan.Speaker) error {
	switch {
	case !s.RouterID.Is4() || s.RouterID.IsUnspecified():
		return fmt.Errorf("BGP router id %s: want an IPv4 address that isn't 0.0.0.0", s.RouterID)
	case s.ClusterID.IsValid() && !s.ClusterID.Is4():
		return fmt.Errorf("BGP cluster id %s: want the form of an IPv4 address", s.ClusterID)
	case s.HoldTime < 3*time.Second || s.HoldTime > 65535*time.Second:
		return fmt.Errorf("BGP hold time %s: want 3 s to 65535 s", s.HoldTime)
	case s.KeepaliveTime < time.Second || s.KeepaliveTime > s.HoldTime:
		return fmt.Errorf("BGP keepalive time %s: want 1 s to the hold time", s.KeepaliveTime)
	case s.ListenPort == 0:
		return errors.New("BGP has no port to listen at")
	}
	for _, a := range s.Listen {
		if !plain(a) {
			return fmt.Errorf("BGP is to listen at %s: want an IPv4 or IPv6 address without zone", a)
		}
	}
	for _, p := range s.Import {
		if !p.IsValid() {
			return errors.New("BGP is to take routes inside what is no prefix")
		}
	}
	return nil
}

// silence ends all sessions for good.
func (s *Speaker) silence(ctx context.Context) error {
	s.desired = Desired{}
	if s.run == nil {
		return nil
	}
	return s.halt(ctx, false)
}

// halt stops the library. graceful means that it is about to start again: neighbours keep our routes meanwhile, and we keep
// theirs.
func (s *Speaker) halt(ctx context.Context, graceful bool) error {
	r := s.run
	s.run = nil
	err := r.stop(ctx, graceful)
	s.sessions.setNeighbours(Desired{})
	if err != nil {
		s.learned.clear()
		return fmt.Errorf("stop BGP: %w", err)
	}
	if graceful {
		s.learned.retain()
	} else {
		s.learned.clear()
	}
	return nil
}

// difference changes what isn't as desired.
func (s *Speaker) difference(ctx context.Context) error {
	r, d := s.run, s.desired
	var errs []error
	s.sessions.setNeighbours(d)
	r.wanted = make(map[netip.Addr]session, len(d.Neighbours))
	for a, n := range d.Neighbours {
		w, err := s.session(n)
		s.sessions.judge(a, err)
		if err != nil {
			errs = append(errs, fmt.Errorf("BGP neighbour %s: %w", a, err))
			if _, runs := r.sessions[a]; !runs {
				s.sessions.refuse(a)
				continue
			}
			w = r.sessions[a]
		}
		r.wanted[a] = w
	}
	s.learned.forgetFormer(d.Neighbours)

	sound := maps.Clone(d.Neighbours)
	maps.DeleteFunc(sound, func(a netip.Addr, _ plan.Neighbour) bool { _, ok := r.wanted[a]; return !ok })
	errs = append(errs, r.setFilters(ctx, filtersOf(d.Speaker, sound)), r.setAdvertisements(d.Advertisements))
	var gone []session
	for _, a := range slices.SortedFunc(maps.Keys(r.sessions), netip.Addr.Compare) {
		if _, ok := r.wanted[a]; !ok {
			gone = append(gone, r.sessions[a])
		}
	}
	errs = append(errs, r.remove(ctx, gone...))
	err := errors.Join(errs...)
	r.set = err == nil
	return errors.Join(err, s.setSessions(ctx))
}

// session returns the session that is wanted with a neighbour. An established one keeps its password until it ends or another
// file is named: the file and the neighbour's password seldom change at the same time.
func (s *Speaker) session(n plan.Neighbour) (session, error) {
	r, a := s.run, n.Address
	w, err := newSession(s.desired.Speaker, n)
	if err != nil {
		return w, err
	}
	if s.sessions.get(a).state == Established && r.files[a] == n.PasswordFile {
		same := w
		same.password, same.terms = r.sessions[a].password, r.sessions[a].terms
		if same == r.sessions[a] {
			s.sessions.setWaits(a, w.password != same.password)
			w.password = same.password
			return w, nil
		}
	}
	s.sessions.setWaits(a, false)
	r.files[a] = n.PasswordFile
	return w, nil
}

// revisit is the part of Apply that tend does later.
func (s *Speaker) revisit(ctx context.Context) error {
	do := s.remainder
	if s.run == nil {
		do = s.reconcile
	}
	err := do(ctx)
	if err == nil {
		err = s.regroup(ctx)
	}
	s.again = s.run == nil
	return err
}

// remainder changes only what may depart from the desired state by itself: sessions. It costs next to nothing for sessions
// that go on, as hundreds may begin at once.
func (s *Speaker) remainder(ctx context.Context) error {
	if !s.run.set || s.hasNewPassword() {
		return s.difference(ctx)
	}
	return s.setSessions(ctx)
}

// hasNewPassword reports whether the password of a neighbour without a session differs from the one that was read.
func (s *Speaker) hasNewPassword() bool {
	for a, n := range s.desired.Neighbours {
		if n.PasswordFile == "" || s.sessions.get(a).state == Established {
			continue
		}
		if w, err := newSession(s.desired.Speaker, n); err != nil || w != s.run.wanted[a] {
			return true
		}
	}
	return false
}

// setSessions brings the sessions to their wanted state.
func (s *Speaker) setSessions(ctx context.Context) error {
	r, now := s.run, time.Now()
	r.regroups = false
	errs := []error{s.look(ctx, now)}
	list := s.sessions.matching(func(e *sessionState) bool { return e.state == Flooded || e.isMute(now) })
	for a, w := range r.wanted {
		if r.sessions[a] != w {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	for _, a := range slices.Compact(list) {
		w, ok := r.wanted[a]
		if !ok {
			continue // it is refused
		}
		if err := s.setSession(ctx, w, now); err != nil {
			errs = append(errs, fmt.Errorf("BGP neighbour %s: %w", a, err))
		}
	}
	s.learned.setComplete(!now.Before(s.deadline) || s.sessions.complete(now))
	return errors.Join(append(errs, s.followUp(ctx, now))...)
}

// noAnswer is the error of a mute neighbour.
const noAnswer = "connected, but it doesn't answer: trying anew"

// setSession brings one session to its wanted state.
func (s *Speaker) setSession(ctx context.Context, wanted session, now time.Time) error {
	r, a := s.run, wanted.address
	has, runs := r.sessions[a]
	is := s.sessions.get(a)
	mute := runs && is.isMute(now)
	if mute { // the event that it is up is late when the library is busy, such as sending it all routes
		up, _ := r.isReady(ctx, a)
		mute = !up
	}
	switch {
	case is.state == Flooded && runs:
		if err := r.remove(ctx, has); err != nil {
			return err
		}
		s.sessions.update(a, func(e *sessionState) { e.until = now.Add(s.floodPause) })
		return nil
	case is.state == Flooded && now.Before(is.until):
		return nil
	case runs && has == wanted && !mute:
		return nil
	case runs:
		if mute {
			s.sessions.fail(a, noAnswer)
		}
		was := has
		was.terms = wanted.terms
		if was == wanted && is.state == Established {
			return nil
		}
		was.clusterID = wanted.clusterID
		if was == wanted && is.state == Established && !mute && r.set && has.terms.restart >= time.Second && s.sessions.mayRestart() {
			r.regroups = true
			return nil
		}
		if err := r.remove(ctx, has); err != nil {
			return err
		}
	}
	s.sessions.begin(a)
	return r.add(ctx, wanted)
}
