// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// libraryLog is where the library logs. What it says about a session becomes that
// session's last error; sessions are logged by us, once each time that something
// changes. The rest comes through one level lower than the library thinks.
type libraryLog struct {
	next slog.Handler
	peer netip.Addr
	// These take what is said of a session.
	fail       func(peer netip.Addr, text string)
	opened     func(peer netip.Addr, waits bool)
	closed     func(peer netip.Addr)
	comingUp   func(peer netip.Addr)
	reconnects func(peer netip.Addr)
	heard      func(peer netip.Addr, u update)
}

// Enabled is true for all: why a connection failed is a debug message, and what an update has.
func (l *libraryLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *l
	c.next = l.next.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key == "Key" {
			if addr, err := netip.ParseAddr(a.Value.String()); err == nil {
				c.peer = addr
			}
		}
	}
	return &c
}

func (l *libraryLog) WithGroup(name string) slog.Handler {
	c := *l
	c.next = l.next.WithGroup(name)
	return &c
}

func (l *libraryLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == stopped && attr(r, "Topic").String() == "BgpServer" {
		return nil
	}
	if l.peer.IsValid() {
		switch r.Message {
		case "received update":
			l.heard(l.peer, updateOf(r))
			return nil
		case "outgoing connection established":
			l.opened(l.peer, true)
			return nil
		case "outgoing connection IO error":
			l.closed(l.peer)
			return nil
		case "open message received on outgoing connection":
			l.opened(l.peer, false)
			return nil
		case "Peer Up":
			l.comingUp(l.peer)
		case "Closed an accepted connection":
			l.reconnects(l.peer)
		}
	}
	if text := sessionError(r); text != "" {
		peer := l.peer
		if key := attr(r, "Key"); key.Kind() == slog.KindString {
			if a, err := netip.ParseAddr(key.String()); err == nil {
				peer = a
			}
		}
		if peer.IsValid() {
			l.fail(peer, text)
			return nil
		}
	}
	switch {
	case r.Level >= slog.LevelError:
		r.Level = slog.LevelWarn
	case r.Level >= slog.LevelInfo:
		r.Level = slog.LevelDebug
	default:
		return nil
	}
	if !l.next.Enabled(ctx, r.Level) {
		return nil
	}
	c := slog.NewRecord(r.Time, r.Level, "BGP library", r.PC)
	c.AddAttrs(slog.String("text", r.Message))
	r.Attrs(func(a slog.Attr) bool { c.AddAttrs(a); return true })
	return l.next.Handle(ctx, c)
}

// stopped is what is said of a server that StopBgp has stopped, when Stop ends the rest of it.
const stopped = "failed to stop BGP server"

// wrongAS is completed with the number. refused is what can be said of a neighbour that didn't
// like how we began: the library doesn't tell what it answered.
const (
	wrongAS = "it is not in AS "
	refused = "it refuses us: does it expect another AS number of us?"
)

// sessionError is what the library's record says about why there is no session, ""
// if it says nothing of the kind.
func sessionError(r slog.Record) string {
	switch r.Message {
	case "failed to connect":
		text := attr(r, "Error").String()
		if i := strings.LastIndex(text, ": "); i >= 0 {
			text = text[i+len(": "):]
		}
		return "connect: " + text
	case "sent notification", "received notification":
		code, subcode := attr(r, "Code"), attr(r, "Subcode")
		if code.Kind() != slog.KindInt64 || subcode.Kind() != slog.KindInt64 {
			return ""
		}
		if code.Int64() == bgp.BGP_ERROR_OPEN_MESSAGE_ERROR && subcode.Int64() == bgp.BGP_ERROR_SUB_BAD_PEER_AS {
			if r.Message == "sent notification" {
				return wrongAS
			}
			return refused
		}
		what := bgp.NewNotificationErrorCode(uint8(code.Int64()), uint8(subcode.Int64())).String()
		if r.Message == "sent notification" {
			return "we ended the session: " + what
		}
		return "the neighbour ended the session: " + what
	case "Session will be reset due to malformed BGP Header",
		"Session will be reset due to malformed BGP message",
		"Session will be reset due to malformed BGP update message",
		"the received Update message was treated as withdraw":
		return fmt.Sprintf("it sent what is no BGP message: %v", attr(r, "Error"))
	case "failed to set md5":
		return fmt.Sprintf("set the password of its connections: %v", attr(r, "Err"))
	}
	return ""
}

// attr is an attribute of a record.
func attr(r slog.Record, key string) (v slog.Value) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			v = a.Value
		}
		return a.Key != key
	})
	return v
}
