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
	// MaxMessage bounds one frame, in bytes; a peer that sends more loses its connection, and so would this host with a peer
	// of its kind.
	MaxMessage = 1 << 20
	// maxParts bounds a message: an envelope's empty delimiter or a topic, and the body.
	maxParts = 2
	// maxHandshake bounds what a peer says of itself before it is known, in bytes.
	maxHandshake = 4 << 10
	// frameTimeout is what a frame takes at most once it has begun.
	frameTimeout = 30 * time.Second

	greetingSize = 64 // https://rfc.zeromq.org/spec/23/#formal-grammar
	flagMore     = 1
	flagLong     = 2
)

// frames follows the bytes of one direction of a connection by their headers, so that what is too large is refused before
// the library, which believes any length, makes room for it.
type frames struct {
	most  uint64 // bytes of a frame
	seen  int    // bytes of the greeting
	head  []byte // a header that isn't whole
	left  uint64 // bytes of the frame still to come
	parts int    // of the message that isn't whole
}

// take follows bytes; the error says why they can't be the peer's of a ZeroMQ socket of ours.
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

// begin begins a frame, if its header is whole.
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

// whole says whether no frame is under way.
func (f *frames) whole() bool {
	return f.left == 0 && len(f.head) == 0 && (f.seen == 0 || f.seen == greetingSize)
}

// checkGreeting says what is wrong with the byte of a greeting at a place. A peer of an older version waits after its first
// bytes for an answer that it knows: it must not be waited for.
func checkGreeting(at int, b byte) error {
	switch {
	case at == 0 && b != 0xff, at == 9 && b != 0x7f:
		return errors.New("it doesn't speak ZeroMQ, or its version 2, which is too old: this socket takes peers of ZeroMQ 4")
	case at == 10 && b < 3:
		return errors.New("it is of ZeroMQ 3 (protocol ZMTP 2.0), which is too old: this socket takes peers of ZeroMQ 4")
	}
	return nil
}

// wire is the connection as the library sees it.
type wire struct {
	net.Conn
	in, out frames
	pending []byte // of a frame that the library writes in pieces
}

func newWire(c net.Conn) *wire {
	return &wire{Conn: c, in: frames{most: maxHandshake}, out: frames{most: MaxMessage}}
}

// Read is of net.Conn. A frame that has begun must end in time.
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
			_ = w.SetReadDeadline(limit) // it fails once the connection is closed, as the next Read does
		}
	}
	return n, err
}

// Write is of net.Conn. It writes whole frames, as others write to the connection too.
func (w *wire) Write(p []byte) (int, error) {
	w.pending = append(w.pending, p...)
	if err := w.out.take(p); err != nil {
		return 0, err
	}
	if !w.out.whole() {
		return len(p), nil
	}
	if w.in.most == MaxMessage { // the handshake has a limit of its own
		_ = w.SetWriteDeadline(time.Now().Add(writeTimeout)) // it fails once the connection is closed, as the Write does
	}
	_, err := w.Conn.Write(w.pending)
	w.pending = w.pending[:0]
	return len(p), err
}

// appendFrame is one frame as it is written.
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
