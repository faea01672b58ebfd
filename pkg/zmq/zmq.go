// SPDX-License-Identifier: Apache-2.0

// Package zmq is ZeroMQ over TCP as the APIs of 2014 use it: [Server] answers REQ and DEALER sockets, [Publisher] tells SUB
// sockets, [Requester] and [Subscriber] are the other ends. All of them speak ZMTP 3.0 with mechanism NULL
// (https://rfc.zeromq.org/spec/23), as libzmq 4 does.
//
// The handshake and messages are read by github.com/go-zeromq/zmq4. Its sockets are not used: they accept one peer after
// another, a REQ whose connection broke never asks again, and nothing bounds how much is kept for a peer. What is worked
// round of the rest: a length is believed whatever it is, so that one header ends the process; a READY that is cut short
// or names no socket type panics; a peer of an older version, or that says nothing, is waited for without end; a PONG is
// written between the parts of a message.
//
// A peer that sends more than MaxMessage or too many parts, that doesn't read, or that makes no sense loses its connection;
// no other notices.
package zmq

import "log/slog"

// Config is what sockets are told when they are made.
type Config struct {
	// Name says what the socket is for, in logs and errors, such as "endpoint API".
	Name   string
	Logger *slog.Logger
}

func (c Config) lost(remote string, reason error) {
	c.Logger.Info("a ZeroMQ peer's connection ended", "socket", c.Name, "peer", remote, "reason", reason)
}
