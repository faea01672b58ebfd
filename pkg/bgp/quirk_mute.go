// SPDX-License-Identifier: Apache-2.0

package bgp

import "time"

// What gobgp does (4.8, pkg/server/fsm.go): opensent waits 4 minutes for the answer of a neighbour that has connected. openconfirm uses
// the hold time of the previous session, and waits for ever if there was none. Neither accepts another connection meanwhile.
// To reproduce: connect, send OPEN and no more; or accept a connection and read nothing (TestMute).
// And outgoingConnManager waits as long for a neighbour that accepts our connection and doesn't answer, without an event.
// What it costs: a neighbour that was cut off just then never has a session again, and one that hangs has none for 4 minutes after it
// recovers, of which the status says nothing.
// What is done here: the session is set up again after 10 s, and the reason is shown.

// mute is how long a neighbour may be connected without answering.
const mute = 10 * time.Second

// patience returns until when an answer of a neighbour is awaited; zero = none is.
func (e *sessionState) patience() time.Time {
	switch {
	case e.state == OpenSent || e.state == OpenConfirm:
		return e.since.Add(mute)
	case e.state == Connecting && !e.opened.IsZero():
		return e.opened.Add(mute)
	}
	return time.Time{}
}

func (e *sessionState) isMute(now time.Time) bool {
	until := e.patience()
	return !until.IsZero() && !now.Before(until)
}
