// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/plan"
)

// States of a session: RFC 4271's, and our own for neighbours that are left alone.
const (
	Idle        = "idle"
	Connecting  = "connecting" // RFC 4271's Connect and Active
	OpenSent    = "open-sent"
	OpenConfirm = "open-confirm"
	Established = "established"
	Flooded     = "flooded" // it sent too many routes
	Refused     = "refused" // it isn't set up: its settings are wrong
)

// quiet is how long a neighbour that doesn't say when it has sent all is given for it.
const quiet = 3 * time.Second

// settling is how long one that does say it is waited for before sessions begin anew all the same.
const settling = 30 * time.Second

// reread is how often the password's file of a neighbour without a session is read again.
const reread = 10 * time.Second

// sessions is what is known of each neighbour's session.
type sessions struct {
	log  *slog.Logger
	wake func()

	mu    sync.Mutex
	table map[netip.Addr]*sessionState
	us    us
	// deadline is when no neighbour is waited for any longer.
	deadline time.Time
}

type sessionState struct {
	neighbour plan.Neighbour
	state     string
	since     time.Time
	err       string // the last error, kept when the session is up again
	errAt     time.Time
	namedAt   time.Time // when a reason was named: more than that it can't be connected to, or closes connections
	told      string    // what was logged last
	mistake   string    // in its settings, "" = none
	doubted   bool      // it has connected anew: is the session alive?
	waits     bool      // a new password waits for the session to end, which was logged
	until     time.Time // of a flooded one's pause
	began     time.Time // when the library was told of it: events before are of one that is gone
	opened    time.Time // when the library connected to it and said its part; zero = that is over
	closes    time.Time // since when it closes connections before there is a session
	closedAt  time.Time // when it closed the last; zero = it doesn't
	flood     floodWatch
	refused   map[netip.Prefix]struct{} // what it sends that is not taken from anybody
	reasons   []string                  // why, as was logged in the session
	looped    bool                      // it was said that it sends routes with our AS number
	sentAll   bool
	says      bool // it says when it has sent all
	opening   opening
}

// want sets a neighbour's settings, and makes its entry.
func (t *sessions) want(n plan.Neighbour) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table == nil {
		t.table = make(map[netip.Addr]*sessionState)
	}
	if e := t.table[n.Address]; e != nil {
		if n.MaxPrefixes < e.neighbour.MaxPrefixes && e.flood.countAt.IsZero() {
			e.flood.countAt = time.Now()
		}
		e.neighbour = n
		return
	}
	t.table[n.Address] = &sessionState{neighbour: n, state: Idle, since: time.Now()}
}

// keep forgets all neighbours but these.
func (t *sessions) keep(wanted map[netip.Addr]plan.Neighbour) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.table {
		if _, ok := wanted[a]; !ok {
			delete(t.table, a)
		}
	}
}

// set notes a state that isn't the library's.
func (t *sessions) set(a netip.Addr, state string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.table[a]; e != nil && e.state != state {
		e.state, e.since = state, time.Now()
	}
}

// begin expects events of a neighbour that the library is about to be told of.
func (t *sessions) begin(a netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.table[a]; e != nil {
		e.began, e.until, e.opened, e.closedAt, e.sentAll, e.flood = time.Now(), time.Time{}, time.Time{}, time.Time{}, false, floodWatch{}
		e.state, e.since, e.refused, e.reasons, e.looped = Idle, e.began, nil, nil, false
	}
}

// state is that of a neighbour's session, and until when it is paused.
func (t *sessions) state(a netip.Addr) (string, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.table[a]; e != nil {
		return e.state, e.until
	}
	return Idle, time.Time{}
}

// pause leaves a flooded neighbour alone for a while.
func (t *sessions) pause(a netip.Addr, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.table[a]; e != nil {
		e.until = until
	}
}

// judge notes what is wrong with a neighbour's settings, nil = nothing.
func (t *sessions) judge(a netip.Addr, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	if e := t.table[a]; e != nil {
		e.mistake = text
	}
	t.mu.Unlock()
	if text != "" {
		t.fail(a, text)
	}
}

// setWaits notes whether a session has another password than its file, and says so once.
func (t *sessions) setWaits(a netip.Addr, waits bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.table[a]
	if e == nil || e.waits == waits {
		return
	}
	e.waits = waits
	if waits {
		t.log.Info("BGP password file has changed: it is used when the session ends", "neighbour", a, "file", e.neighbour.PasswordFile)
	}
}

// fail notes why there is no session, and logs it if it is news. A mistake in the
// settings is why, whatever comes of trying without.
func (t *sessions) fail(a netip.Addr, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.table[a]
	if e == nil || e.state == Flooded { // which says more than how it was cut off
		return
	}
	if e.mistake != "" && e.mistake != text && e.state != Established {
		return
	}
	if e.neighbour.PasswordFile != "" && strings.HasPrefix(text, "connect:") && strings.Contains(text, "timeout") {
		text += "; it is down, or its password is not the one in " + e.neighbour.PasswordFile
	}
	if (text == noAnswer || strings.HasPrefix(text, "connect:") && !strings.Contains(text, "refused")) && e.isNear(t.us.as) {
		text += nearAdvice
	}
	if text == wrongAS {
		text = fmt.Sprintf("%s%s, which is set for it: correct it here, or there", wrongAS, e.neighbour.AS)
	}
	e.err, e.errAt, e.opened = text, time.Now(), time.Time{}
	if !strings.HasPrefix(text, itCloses) {
		e.closedAt = time.Time{}
		if !strings.HasPrefix(text, "connect:") {
			e.namedAt = e.errAt
		}
	}
	// The end of a session in progress is logged as such.
	ends := e.state == Established && strings.Contains(text, "ended the session")
	if e.told == text || ends {
		return
	}
	e.told = text
	t.log.Warn("BGP session failed", "neighbour", a, "as", e.neighbour.AS, "error", text)
}

// nearAdvice is said of a neighbour that isNear, as what we send to one that isn't is lost.
const nearAdvice = "; if it is in no subnet of this host's, set ebgp_multihop"

// isNear says whether a neighbour must be on a link of ours: packets to one of another AS live for one hop.
func (e *sessionState) isNear(as uint32) bool {
	return uint32(e.neighbour.AS) != as && e.neighbour.Multihop <= 1
}

// event takes in what the library says of a session.
func (t *sessions) event(ev *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	a, now := ev.Peer.State.NeighborAddress, stateOf(ev.Peer.State.SessionState)
	t.mu.Lock()
	e := t.table[a]
	if e == nil || at.Before(e.began) || e.state == now || e.state == Flooded || e.state == Refused {
		t.mu.Unlock()
		return
	}
	before := e.state
	e.state, e.since = now, at
	why := ""
	switch {
	case now == Established:
		e.opening.due = at
		e.says = saysEnd(ev.Peer.State.RemoteCap)
		e.told, e.closedAt, e.namedAt, e.waits = "", time.Time{}, time.Time{}, false
		t.log.Info("BGP session up", "neighbour", a, "as", ev.Peer.State.PeerASN)
	case before == Established:
		e.sentAll, e.flood, e.refused, e.reasons, e.looped = false, floodWatch{}, nil, nil, false
		why = ended(ev.Peer.State.DisconnectReason)
		if why == "" {
			why = e.err
		} else {
			e.err, e.errAt = why, at
		}
		t.log.Warn("BGP session down", "neighbour", a, "as", e.neighbour.AS, "error", why)
	}
	t.mu.Unlock()
	if (before == OpenSent || before == OpenConfirm) && now == Idle {
		switch ev.Peer.State.DisconnectReason {
		case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
			t.fail(a, refused)
		case api.PeerState_DISCONNECT_REASON_READ_FAILED:
			t.closed(a)
		}
	}
	if now == Established || before == Established || now == OpenSent || now == OpenConfirm {
		t.wake()
	}
}

// sentAll notes neighbours that have said that they sent all they have.
func (t *sessions) sentAll(from []netip.Addr) {
	if len(from) == 0 {
		return
	}
	t.mu.Lock()
	for _, a := range from {
		if e := t.table[a]; e != nil {
			e.sentAll = true
		}
	}
	t.mu.Unlock()
	t.wake()
}

// wait starts the time that neighbours have to say what they have.
func (t *sessions) wait(deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deadline = deadline
}

// complete says whether no neighbour is to be waited for any longer.
func (t *sessions) complete(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !now.Before(t.deadline) {
		return true
	}
	for _, e := range t.table {
		silent := e.state == Established && !e.says && now.Sub(e.since) >= quiet
		if !e.sentAll && !silent && e.state != Flooded && e.state != Refused {
			return false
		}
	}
	return true
}

// settled says whether no session is coming up: each that is up has brought what the neighbour has, or had the time to.
func (t *sessions) settled(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.table {
		silent := !e.says && now.Sub(e.since) >= quiet
		late := now.Sub(e.since) >= settling
		if e.state == OpenSent || e.state == OpenConfirm || e.state == Established && !e.sentAll && !silent && !late {
			return false
		}
	}
	return true
}

// mayRestart says whether no session is lost by a restart: each neighbour that has one keeps our routes meanwhile, and
// the password that it has is still the file's.
func (t *sessions) mayRestart() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.table {
		if e.state == Established && (!e.says || e.waits) {
			return false
		}
	}
	return true
}

// due is when something is to be looked at again without an event.
func (t *sessions) due(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := time.Hour
	at := func(when time.Time) {
		if d := when.Sub(now); d > 0 {
			next = min(next, d)
		}
	}
	at(t.deadline)
	for _, e := range t.table {
		at(e.until)
		at(e.patience())
		at(e.flood.countAt)
		if e.state == Established && !e.opening.due.IsZero() {
			next = min(next, max(0, e.opening.due.Sub(now)))
		}
		if e.state == Established && !e.says {
			at(e.since.Add(quiet))
		}
		if e.state == Established && !e.sentAll {
			at(e.since.Add(settling))
		}
		if e.state != Established && e.neighbour.PasswordFile != "" {
			at(now.Add(reread))
		}
	}
	return next + time.Millisecond
}

// stateOf names the library's state.
func stateOf(s bgp.FSMState) string {
	switch s {
	case bgp.BGP_FSM_CONNECT, bgp.BGP_FSM_ACTIVE:
		return Connecting
	case bgp.BGP_FSM_OPENSENT:
		return OpenSent
	case bgp.BGP_FSM_OPENCONFIRM:
		return OpenConfirm
	case bgp.BGP_FSM_ESTABLISHED:
		return Established
	}
	return Idle
}

// ended says why a session ended, "" where the library has logged it better.
func ended(why api.PeerState_DisconnectReason) string {
	switch why {
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "nothing was heard for the hold time"
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "the connection broke"
	case api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the connection broke, or nothing was heard for the hold time; its routes stay for its restart time"
	}
	return ""
}

// saysEnd says whether the neighbour agreed to graceful restart, and thus to end-of-RIB.
func saysEnd(caps []bgp.ParameterCapabilityInterface) bool {
	for _, c := range caps {
		if c.Code() == bgp.BGP_CAP_GRACEFUL_RESTART {
			return true
		}
	}
	return false
}
