// SPDX-License-Identifier: Apache-2.0

package zmq

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

const (
	handshakeTimeout = 10 * time.Second
	// writeTimeout is what a peer takes at most to read one message.
	writeTimeout = 10 * time.Second
	// maxQueue and maxPublished bound what waits for a peer that reads more slowly than it is told, in bytes. Publications are
	// the same bytes for all peers.
	maxQueue     = 4 << 20
	maxPublished = 128 << 20
)

// conn is a connection to a peer whose handshake is done.
type conn struct {
	wire   *wire
	mu     sync.Mutex
	queue  [][]byte // messages to be written
	queued int      // their bytes
	most   int      // of these
	wake   chan struct{}
	reason error // why it ends, nil = it doesn't
	ended  chan struct{}
	lib    *zmq4.Conn
}

// open greets a peer. The connection is closed when the context ends.
func open(ctx context.Context, raw net.Conn, kind zmq4.SocketType, server bool) (c *conn, err error) {
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Now()) })()
	c = &conn{wire: newWire(buffered{raw, bufio.NewReader(raw)}), most: maxQueue, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	if kind == zmq4.Pub {
		c.most = maxPublished
	}
	defer func() {
		if r := recover(); r != nil { // the library reads past the end of some, and knows no other socket types
			err = errors.New("it introduces itself by what is no READY of a ZeroMQ socket")
		}
		if err != nil {
			_ = raw.Close() // the first error is the one to tell
		}
	}()
	if err := raw.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	c.lib, err = zmq4.Open(c.wire, null.Security(), kind, nil, server, nil)
	if err != nil {
		return nil, err
	}
	c.wire.in.most = MaxMessage
	return c, raw.SetDeadline(time.Time{})
}

// buffered reads many small frames at once.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// send queues a message, which is written as one.
func (c *conn) send(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason != nil {
		return
	}
	if c.queued += len(message); c.queued > c.most {
		c.endLocked(fmt.Errorf("it doesn't read: %d MB wait for it", c.most>>20))
		return
	}
	c.queue = append(c.queue, message)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes what is queued until the connection ends.
func (c *conn) write() {
	for {
		c.mu.Lock()
		queue := c.queue
		c.queue = nil
		c.mu.Unlock()
		for _, m := range queue {
			err := c.wire.SetWriteDeadline(time.Now().Add(writeTimeout))
			if err == nil {
				_, err = c.wire.Conn.Write(m)
			}
			if err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					err = fmt.Errorf("it doesn't read: %w", err)
				}
				c.end(err)
				return
			}
			c.mu.Lock()
			c.queued -= len(m)
			c.mu.Unlock()
		}
		select {
		case <-c.wake:
		case <-c.ended:
			return
		}
	}
}

// run reads messages until the connection ends, and returns why. It is closed then.
func (c *conn) run(ctx context.Context, take func(parts [][]byte) error) error {
	defer context.AfterFunc(ctx, func() { c.end(ctx.Err()) })()
	var writing sync.WaitGroup
	writing.Go(c.write)
	for {
		m, err := c.lib.RecvMsg()
		if err == nil && m.Type == zmq4.UsrMsg {
			err = take(m.Frames)
		}
		if err != nil {
			c.end(err)
			writing.Wait()
			return c.reason
		}
	}
}

// end ends the connection, for the first reason that is given.
func (c *conn) end(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(reason)
}

func (c *conn) endLocked(reason error) {
	if c.reason != nil {
		return
	}
	c.reason, c.queue = reason, nil
	close(c.ended)
	_ = c.wire.Close() // nobody reads or writes it any more
}

// enveloped reads what a REQ, REP, DEALER or ROUTER socket sends.
func enveloped(parts [][]byte) ([]byte, error) {
	if len(parts) != 2 || len(parts[0]) != 0 {
		return nil, errors.New("it sends no request or reply of an empty delimiter and one part")
	}
	return parts[1], nil
}

func envelope(body []byte) []byte {
	return appendFrame(appendFrame(make([]byte, 0, 2+9+len(body)), nil, true), body, false)
}
