// SPDX-License-Identifier: Apache-2.0

// Package zmq implements ZeroMQ over TCP as used by the APIs of 2014: [Server] answers REQ and DEALER sockets,
// [Publisher] serves SUB sockets, and [Requester] and [Subscriber] are the other ends. All of them use ZMTP 3.0 with
// mechanism NULL (https://rfc.zeromq.org/spec/23), like libzmq 4.
//
// github.com/go-zeromq/zmq4 reads the handshake and messages. Its sockets are not used: they accept one peer after
// another, a REQ whose connection broke never repeats its request, and what is queued for a peer has no limit. This
// package works around the rest: the library trusts any length, so that one header ends the process; it panics on a
// READY that is cut short or has no socket type; it waits forever for a peer that is of an older version or silent; and
// it writes a PONG between the parts of a message.
// written between the parts of a message.
// A peer that sends more than MaxMessage or too many parts, doesn't read, or sends nonsense loses its connection;
// others don't notice.
// no other notices.
package zmq

import "log/slog"

// Config is the common configuration of sockets.
type Config struct {
	// Name says what the socket is for, in logs and errors, such as "endpoint API".
	Name   string
	Logger *slog.Logger
}

func (c Config) lost(remote string, reason error) {
	c.Logger.Info("a ZeroMQ peer's connection ended", "socket", c.Name, "peer", remote, "reason", reason)
}
