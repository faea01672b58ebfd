// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// libraryLog is the library's logger. It takes in what the library reports nowhere else, and passes the rest on at a lower
// level. The library uses no groups.
type libraryLog struct {
	slog.Handler
	peer     netip.Addr
	sessions *sessions
}

// Enabled returns true for all levels: why a connection failed is a debug message.
func (l *libraryLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *l
	c.Handler = l.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		c.setPeer(a)
	}
	return &c
}

// setPeer records which neighbour a record is about.
func (l *libraryLog) setPeer(a slog.Attr) {
	if a.Key == "Key" {
		if addr, err := netip.ParseAddr(a.Value.String()); err == nil {
			l.peer = addr
		}
	}
}

func (l *libraryLog) Handle(ctx context.Context, r slog.Record) error {
	of := *l
	r.Attrs(func(a slog.Attr) bool { of.setPeer(a); return true })
	if of.peer.IsValid() && of.takeIn(r) || r.Message == stopped && attr(r, "Topic").String() == "BgpServer" {
		return nil
	}
	switch {
	case r.Level >= slog.LevelError:
		r.Level = slog.LevelWarn
	case r.Level >= slog.LevelInfo:
		r.Level = slog.LevelDebug
	default:
		return nil
	}
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	c := slog.NewRecord(r.Time, r.Level, "BGP library", r.PC)
	c.AddAttrs(slog.String("text", r.Message))
	r.Attrs(func(a slog.Attr) bool { c.AddAttrs(a); return true })
	return l.Handler.Handle(ctx, c)
}

// stopped is the message about a server that StopBgp has stopped, when Stop ends the rest of it.
const stopped = "failed to stop BGP server"

// wrongAS is completed with the number. refused is all that is known of a neighbour that rejects how we open a session: the
// library doesn't report its answer.
const (
	wrongAS = "it is not in AS "
	refused = "it refuses us: does it expect another AS number of us?"
)

// takeIn reports whether a record says what no event of gobgp 4.8 says, and passes that to the sessions. Connections that gobgp makes
// cause no events until the neighbour has answered, and the event of an update copies all its paths.
func (l *libraryLog) takeIn(r slog.Record) bool {
	switch r.Message {
	case "received update": // pkg/server/peer.go, handleUpdate
		l.sessions.noteUpdate(l.peer)
	case "outgoing connection established": // pkg/server/fsm.go, outgoingConnManager.run
		l.sessions.update(l.peer, func(e *sessionState) { e.opened = time.Now() })
		l.sessions.wake()
	case "open message received on outgoing connection":
		l.sessions.update(l.peer, func(e *sessionState) { e.opened = time.Time{} })
	case "outgoing connection IO error": // pkg/server/fsm.go, outgoingConnManager.run
		l.sessions.update(l.peer, l.sessions.closed)
	case "failed to connect": // pkg/server/fsm.go, connectLoop
		text := attr(r, "Error").String()
		if i := strings.LastIndex(text, ": "); i >= 0 {
			text = text[i+len(": "):]
		}
		l.sessions.fail(l.peer, "connect: "+text)
	case "sent notification": // pkg/server/fsm.go, sendNotification
		code, subcode := attr(r, "Code"), attr(r, "Subcode")
		if code.Kind() != slog.KindInt64 || subcode.Kind() != slog.KindInt64 {
			return false
		}
		l.sessions.sentNotification(l.peer, uint8(code.Int64()), uint8(subcode.Int64()))
	case "Session will be reset due to malformed BGP Header", // pkg/server/fsm.go, recvMessageWithError and recvMessageloop
		"Session will be reset due to malformed BGP message",
		"Session will be reset due to malformed BGP update message":
		l.sessions.fail(l.peer, fmt.Sprintf("it sent what is no BGP message: %v", attr(r, "Error")))
	case "failed to set md5": // pkg/server/server.go, addNeighbor
		l.sessions.fail(l.peer, fmt.Sprintf("set the password of its connections: %v", attr(r, "Err")))
	default:
		return false
	}
	return true
}

// sentNotification records that we refused a neighbour. If we ended a session that was up, the event of its end says why.
func (t *sessions) sentNotification(a netip.Addr, code, subcode uint8) {
	text := weEnded + bgp.NewNotificationErrorCode(code, subcode).String()
	switch {
	case code == bgp.BGP_ERROR_OPEN_MESSAGE_ERROR && subcode == bgp.BGP_ERROR_SUB_BAD_PEER_AS:
		text = wrongAS
	case code == bgp.BGP_ERROR_HOLD_TIMER_EXPIRED:
		text = noAnswer
	}
	t.update(a, func(e *sessionState) {
		if e.state != Established {
			t.failed(e, text)
		}
	})
}

// attr returns an attribute of a record, the zero Value if it has none of that key.
func attr(r slog.Record, key string) (v slog.Value) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			v = a.Value
		}
		return a.Key != key
	})
	return v
}
