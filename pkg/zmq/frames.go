// SPDX-License-Identifier: Apache-2.0

package zmq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// MaxMessage bounds one frame, in bytes. A peer that sends more loses its connection, and so would this host at
	// such a peer.
	MaxMessage = 1 << 20
	// maxParts bounds a message: an envelope's empty delimiter or a topic, and the body.
	maxParts = 2
	// maxHandshake bounds what a peer sends before it is known, in bytes.
	maxHandshake = 4 << 10
	// frameTimeout is how long a frame may take once it has begun.
	frameTimeout = 30 * time.Second

	greetingSize = 64 // https://rfc.zeromq.org/spec/23/#formal-grammar
	flagMore     = 1
	flagLong     = 2
)

// frames tracks the headers in one direction of a connection, so that a frame which is too large is rejected before the
// library, which trusts any length, allocates memory for it.
type frames struct {
	most  uint64 // maximum bytes of a frame
	seen  int    // bytes of the greeting so far
	head  []byte // an incomplete header
	left  uint64 // remaining bytes of the frame
	parts int    // parts so far of an incomplete message
}

// take tracks bytes. The error says why they can't come from a ZeroMQ socket that we support.
func (f *frames) take(b []byte) error {
	for len(b) > 0 {
		switch {
		case f.seen < greetingSize:
			if err := checkGreeting(f.seen, b[0]); err != nil {
				return err
			}
			f.seen++
			b = b[1:]
		case f.left > 0:
			n := min(f.left, uint64(len(b)))
			f.left -= n
			b = b[n:]
		default:
			f.head = append(f.head, b[0])
			b = b[1:]
			if err := f.begin(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin begins a frame if its header is complete.
func (f *frames) begin() error {
	flags, size := f.head[0], uint64(0)
	switch {
	case flags&flagLong == 0 && len(f.head) == 2:
		size = uint64(f.head[1])
	case flags&flagLong != 0 && len(f.head) == 9:
		size = binary.BigEndian.Uint64(f.head[1:])
	default:
		return nil
	}
	if size > f.most {
		return fmt.Errorf("it sends a frame of %d bytes: at most %d are taken", size, f.most)
	}
	f.parts++
	if f.parts > maxParts {
		return fmt.Errorf("it sends a message of more than %d parts", maxParts)
	}
	if flags&flagMore == 0 {
		f.parts = 0
	}
	f.left, f.head = size, f.head[:0]
	return nil
}

// whole reports whether no frame is incomplete.
func (f *frames) whole() bool {
	return f.left == 0 && len(f.head) == 0 && (f.seen == 0 || f.seen == greetingSize)
}

// checkGreeting returns an error if a byte of a greeting is wrong at its place. A peer of an older version waits after
// its first bytes for an answer that it knows, so this side must not wait for more.
func checkGreeting(at int, b byte) error {
	switch {
	case at == 0 && b != 0xff, at == 9 && b != 0x7f:
		return errors.New("it doesn't speak ZeroMQ, or its version 2, which is too old: this socket takes peers of ZeroMQ 4")
	case at == 10 && b < 3:
		return errors.New("it is of ZeroMQ 3 (protocol ZMTP 2.0), which is too old: this socket takes peers of ZeroMQ 4")
	}
	return nil
}

// wire is the connection as seen by the library.
type wire struct {
	net.Conn
	in, out frames
	pending []byte // of a frame that the library writes in pieces
}

func newWire(c net.Conn) *wire {
	return &wire{Conn: c, in: frames{most: maxHandshake}, out: frames{most: MaxMessage}}
}

// Read implements net.Conn. A frame that has begun must end in time.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		before := w.in.whole()
		if bad := w.in.take(p[:n]); bad != nil {
			return 0, bad
		}
		if after := w.in.whole(); before != after && w.in.most == MaxMessage { // the handshake has a limit of its own
			limit := time.Time{}
			if !after {
				limit = time.Now().Add(frameTimeout)
			}
			_ = w.SetReadDeadline(limit) // fails once the connection is closed, as does the next Read
		}
	}
	return n, err
}

// Write implements net.Conn. It writes complete frames, because others write to the connection too.
func (w *wire) Write(p []byte) (int, error) {
	w.pending = append(w.pending, p...)
	if err := w.out.take(p); err != nil {
		return 0, err
	}
	if !w.out.whole() {
		return len(p), nil
	}
	if w.in.most == MaxMessage { // the handshake has a limit of its own
		_ = w.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails once the connection is closed, as does the Write
	}
	_, err := w.Conn.Write(w.pending)
	w.pending = w.pending[:0]
	return len(p), err
}

// appendFrame appends one frame.
func appendFrame(b, body []byte, more bool) []byte {
	flags := byte(0)
	if more {
		flags = flagMore
	}
	if len(body) < 256 {
		b = append(b, flags, byte(len(body)))
	} else {
		b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(body)))
	}
	return append(b, body...)
}
