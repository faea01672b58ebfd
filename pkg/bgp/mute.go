// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"net/netip"
	"time"
)

// What gobgp does (4.7 and 4.8): it waits for the answer of a neighbour that takes the connection, or that says OPEN and no
// more, for 4 minutes, and says nothing of it.
// To reproduce: listen at a neighbour's port and read nothing (TestMute).
// What it costs: a neighbour that hangs, or was cut off just then, has no session for 4 minutes after it is well again.
// What is done here: the session is set up anew after 10 s, and the reason shown.

// mute is how long a neighbour may be connected and not answer.
const mute = 10 * time.Second

// opened notes that the library has connected to a neighbour and waits for its answer, or that it doesn't.
func (t *sessions) opened(a netip.Addr, waits bool) {
	t.mu.Lock()
	e := t.table[a]
	if e == nil {
		t.mu.Unlock()
		return
	}
	e.opened = time.Time{}
	if waits {
		e.opened = time.Now()
	}
	t.mu.Unlock()
	if waits {
		t.wake()
	}
}

// collision is for how long connections may be closed that both sides have begun at once: one of
// each two has to go (RFC 4271, section 6.8). Of two hosts that start together more than one pair may meet.
const collision = 2 * connectRetry * time.Second

// apart is more than passes between two tries to connect: closings further apart have nothing to do with each other.
const apart = 3 * connectRetry * time.Second

// named is for how long a reason that was named stands, though connections are closed as well: that is what
// becomes of others to the same neighbour. Tries come more often, each with its reason.
const named = 30 * time.Second

// itCloses is how the text of a neighbour begins that closes connections.
const itCloses = "it closes the connection: "

// closed notes that a neighbour closes connections without a word before there is a session, as routers do
// with those of whom they don't know.
func (t *sessions) closed(a netip.Addr) {
	t.mu.Lock()
	e := t.table[a]
	if e == nil {
		t.mu.Unlock()
		return
	}
	now := time.Now()
	e.opened = time.Time{}
	if now.Sub(e.closedAt) > apart {
		e.closes = now
	}
	e.closedAt = now
	says := now.Sub(e.closes) >= collision && now.Sub(e.namedAt) >= named
	text := fmt.Sprintf("%sis %s with AS %d set as its neighbour there?", itCloses, e.neighbour.Local, t.us.as)
	if !e.neighbour.Local.IsValid() {
		text = fmt.Sprintf("%sis this host with AS %d set as its neighbour there?", itCloses, t.us.as)
	}
	t.mu.Unlock()
	if says {
		t.fail(a, text)
	}
}

// patience is until when an answer of a neighbour is waited for; zero = nothing is.
func (e *sessionState) patience() time.Time {
	switch {
	case e.state == OpenSent || e.state == OpenConfirm:
		return e.since.Add(mute)
	case e.state == Connecting && !e.opened.IsZero():
		return e.opened.Add(mute)
	}
	return time.Time{}
}

// isMute says whether a neighbour has had its time to answer.
func (t *sessions) isMute(a netip.Addr, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.table[a]
	return e != nil && e.isMute(now)
}

func (e *sessionState) isMute(now time.Time) bool {
	until := e.patience()
	return !until.IsZero() && !now.Before(until)
}

// disturbed are the neighbours with whom something is to be done for the state that they are in.
func (t *sessions) disturbed(now time.Time) (list []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a, e := range t.table {
		if e.state == Flooded || e.isMute(now) {
			list = append(list, a)
		}
	}
	return list
}
