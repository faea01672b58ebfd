// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
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
	Refused     = "refused" // it isn't set up, as its settings are wrong
)

// quiet is how long to wait for the routes of a neighbour that doesn't say when it has sent all.
const quiet = 3 * time.Second

// settling is how long to wait for a neighbour that does, before sessions are restarted all the same.
const settling = 30 * time.Second

// reread is how often the password file of a neighbour without a session is read again.
const reread = 10 * time.Second

// sessions holds what is known of each neighbour's session.
type sessions struct {
	log  *slog.Logger
	wake func()

	mu    sync.Mutex
	table map[netip.Addr]*sessionState
	as    uint32 // ours
}

type sessionState struct {
	neighbour plan.Neighbour
	state     string
	since     time.Time
	err       string // the last error, kept when the session is up again
	errAt     time.Time
	told      string    // what was logged last
	mistake   string    // in its settings, "" = none
	closes    int       // connections that it closed since its last other sign of life
	until     time.Time // end of the pause of a flooded neighbour; another limit ends it early
	began     time.Time // when the library was given it: earlier events are of a removed session
	opened    time.Time // when the library connected to it; zero = it doesn't wait for its answer
	progress
}

// progress is what is known of a session that is up; each session begins with a new one.
type progress struct {
	says, sentAll bool      // it says when it has sent all; it has sent all
	waits         bool      // a new password waits for the session to end, which was logged
	comesUp       time.Time // a time before the library read its table for it
	followUpAt    time.Time // zero = it was done
	lookAt        time.Time // when to look at what it sent; zero = nothing new
	lookPause     time.Duration
	refused       int      // how many prefixes it sends that are taken from no neighbour
	reasons       []string // why, as logged
	looped        bool     // it was logged that it sends routes with our AS number
}

// update changes the entry of a neighbour, if there is one.
func (t *sessions) update(a netip.Addr, change func(*sessionState)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.table[a]; e != nil {
		change(e)
	}
}

// get returns a copy of a neighbour's entry.
func (t *sessions) get(a netip.Addr) sessionState {
	is := sessionState{state: Idle}
	t.update(a, func(e *sessionState) { is = *e })
	return is
}

// matching returns the neighbours whose entries match.
func (t *sessions) matching(match func(*sessionState) bool) (list []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a, e := range t.table {
		if match(e) {
			list = append(list, a)
		}
	}
	return list
}

// setNeighbours gives the table entries for the desired neighbours, and no others.
func (t *sessions) setNeighbours(d Desired) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.as = uint32(d.Speaker.AS)
	if t.table == nil {
		t.table = make(map[netip.Addr]*sessionState)
	}
	maps.DeleteFunc(t.table, func(a netip.Addr, _ *sessionState) bool { _, ok := d.Neighbours[a]; return !ok })
	for a, n := range d.Neighbours {
		e := t.table[a]
		if e == nil {
			e = &sessionState{state: Idle, since: time.Now()}
			t.table[a] = e
		}
		if n.MaxPrefixes != e.neighbour.MaxPrefixes {
			e.lookAt, e.until = time.Now(), time.Time{}
		}
		if e.refused > 0 && e.lookAt.IsZero() { // our own prefixes may have changed
			e.lookAt = time.Now().Add(e.lookPause)
		}
		e.neighbour = n
	}
}

// refuse records that a neighbour isn't set up.
func (t *sessions) refuse(a netip.Addr) {
	t.update(a, func(e *sessionState) {
		if e.state != Refused {
			e.state, e.since = Refused, time.Now()
		}
	})
}

// begin prepares for events of a neighbour that is about to be given to the library.
func (t *sessions) begin(a netip.Addr) {
	t.update(a, func(e *sessionState) {
		now := time.Now()
		e.state, e.since, e.began, e.until, e.opened, e.closes, e.progress = Idle, now, now, time.Time{}, time.Time{}, 0, progress{}
	})
}

// judge records what is wrong with a neighbour's settings, nil = nothing.
func (t *sessions) judge(a netip.Addr, err error) {
	t.update(a, func(e *sessionState) {
		e.mistake = ""
		if err != nil {
			e.mistake = err.Error()
			t.failed(e, e.mistake)
		}
	})
}

// setWaits records whether a session has a password other than its file's, and logs so once.
func (t *sessions) setWaits(a netip.Addr, waits bool) {
	t.update(a, func(e *sessionState) {
		if waits && !e.waits {
			t.log.Info("BGP password file has changed: it is used when the session ends", "neighbour", a, "file", e.neighbour.PasswordFile)
		}
		e.waits = waits
	})
}

// fail records why there is no session, and logs it if it is new.
func (t *sessions) fail(a netip.Addr, text string) {
	t.update(a, func(e *sessionState) { t.failed(e, text) })
}

// failed is fail with t.mu held. A mistake in the settings stays the reason until the session is up.
func (t *sessions) failed(e *sessionState, text string) {
	if e.state == Flooded { // the flood is the real reason
		return
	}
	if e.mistake != "" && e.mistake != text && e.state != Established {
		return
	}
	if e.neighbour.PasswordFile != "" && strings.HasPrefix(text, "connect:") && strings.Contains(text, "timeout") {
		text += "; it is down, or its password is not the one in " + e.neighbour.PasswordFile
	}
	if (text == noAnswer || strings.HasPrefix(text, "connect:") && !strings.Contains(text, "refused")) && e.isNear(t.as) {
		text += nearAdvice
	}
	if text == wrongAS {
		text = fmt.Sprintf("%s%s, which is set for it: correct it here, or there", wrongAS, e.neighbour.AS)
	}
	e.err, e.errAt, e.closes, e.opened = text, time.Now(), 0, time.Time{}
	if e.told == text {
		return
	}
	e.told = text
	t.log.Warn("BGP session failed", "neighbour", e.neighbour.Address, "as", e.neighbour.AS, "error", text)
}

// nearAdvice is added for a neighbour that isNear: if it isn't on a link of ours, what we send to it is lost.
const nearAdvice = "; if it is in no subnet of this host's, set ebgp_multihop"

// isNear reports whether a neighbour must be on a link of ours: packets to one of another AS live for one hop.
func (e *sessionState) isNear(as uint32) bool {
	return uint32(e.neighbour.AS) != as && e.neighbour.Multihop <= 1
}

// tooManyCloses is how many connections in a row a neighbour closes before that is reported. If both sides open one at once, one of
// them has to go (RFC 4271, section 6.8), and a neighbour that has given a reason closes some before it gives it again.
const tooManyCloses = 6

// closed records that a neighbour closed a connection without a word before there was a session, as routers do with hosts
// that aren't their neighbours.
func (t *sessions) closed(e *sessionState) {
	e.opened = time.Time{}
	if e.state == Established { // both sides opened a connection, and this is the other one
		return
	}
	if e.closes++; e.closes < tooManyCloses {
		return
	}
	us := e.neighbour.Local.String()
	if !e.neighbour.Local.IsValid() {
		us = "this host"
	}
	t.failed(e, fmt.Sprintf("it closes the connection: is %s with AS %d set as its neighbour there?", us, t.as))
	e.closes = tooManyCloses
}

// event takes in an event of the library about a session.
func (t *sessions) event(ev *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	is := ev.Peer.State
	t.update(is.NeighborAddress, func(e *sessionState) {
		before, since, now := e.state, e.since, stateOf(is.SessionState)
		if at.Before(e.began) || before == now || before == Flooded || before == Refused {
			return
		}
		e.state, e.since, e.opened = now, at, time.Time{}
		switch {
		case now == Established:
			e.progress = progress{comesUp: since, followUpAt: at.Add(behind), lookAt: at.Add(lookEvery)}
			// A neighbour that agreed to graceful restart also agreed to send End-of-RIB.
			e.says = slices.ContainsFunc(is.RemoteCap, func(c bgp.ParameterCapabilityInterface) bool { return c.Code() == bgp.BGP_CAP_GRACEFUL_RESTART })
			e.told, e.closes = "", 0
			t.log.Info("BGP session up", "neighbour", is.NeighborAddress, "as", is.PeerASN)
		case before == Established:
			e.progress = progress{}
			if why := ended(is); why != "" {
				e.err, e.errAt = why, at
			}
			t.log.Warn("BGP session down", "neighbour", is.NeighborAddress, "as", e.neighbour.AS, "error", e.err)
		case now == Idle && (before == OpenSent || before == OpenConfirm):
			switch is.DisconnectReason {
			case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
				t.failed(e, refused)
			case api.PeerState_DISCONNECT_REASON_READ_FAILED:
				t.closed(e)
			}
		}
		t.wake()
	})
}

// complete reports whether all neighbours have sent what they have.
func (t *sessions) complete(now time.Time) bool {
	return len(t.matching(func(e *sessionState) bool {
		return !e.sentAll && !e.isSilent(now) && e.state != Flooded && e.state != Refused
	})) == 0
}

// isSilent reports whether a neighbour that doesn't say when it has sent all has had its time.
func (e *sessionState) isSilent(now time.Time) bool {
	return e.state == Established && !e.says && now.Sub(e.since) >= quiet
}

// settled reports whether no session is coming up: each that is up has brought the neighbour's routes, or had time to.
func (t *sessions) settled(now time.Time) bool {
	return len(t.matching(func(e *sessionState) bool {
		return e.state == OpenSent || e.state == OpenConfirm ||
			e.state == Established && !e.sentAll && !e.isSilent(now) && now.Sub(e.since) < settling
	})) == 0
}

// mayRestart reports whether a restart loses no session: each neighbour that has one keeps our routes meanwhile, and its
// session's password is still the file's.
func (t *sessions) mayRestart() bool {
	return len(t.matching(func(e *sessionState) bool { return e.state == Established && (!e.says || e.waits) })) == 0
}

// due returns how long until something must be looked at again, even without an event.
func (t *sessions) due(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := time.Hour
	at := func(when time.Time) {
		if d := when.Sub(now); d > 0 {
			next = min(next, d)
		}
	}
	for _, e := range t.table {
		at(e.until)
		at(e.patience())
		at(e.lookAt)
		at(e.followUpAt)
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

// stateOf returns the name of the library's state.
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

// weEnded begins the error of a session that we ended.
const weEnded = "we ended the session: "

// ended returns why a session ended, "" if the library says nothing useful.
func ended(is apiutil.PeerState) string {
	switch is.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_RECEIVED:
		return "the neighbour ended the session: " + strings.TrimPrefix(is.DisconnectMessage, "notification-received ")
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_SENT:
		return weEnded + strings.TrimPrefix(is.DisconnectMessage, "notification-sent ")
	case api.PeerState_DISCONNECT_REASON_ADMIN_DOWN:
		return weEnded + bgp.NewNotificationErrorCode(bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN).String()
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "nothing was heard for the hold time"
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "the connection broke"
	case api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the connection broke, or nothing was heard for the hold time; its routes stay for its restart time"
	}
	return ""
}
