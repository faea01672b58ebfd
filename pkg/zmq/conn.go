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
	// writeTimeout is how long a peer may take to read one message.
	writeTimeout = 10 * time.Second
	// maxQueue and maxPublished bound the bytes queued for a slow peer. Publications share their bytes among all peers.
	maxQueue     = 4 << 20
	maxPublished = 128 << 20
)

// conn is a connection to a peer after the handshake.
type conn struct {
	wire   *wire
	mu     sync.Mutex
	queue  [][]byte // messages to be written
	queued int      // size of queue in bytes
	most   int      // limit of queued
	wake   chan struct{}
	reason error // why it has ended, or nil
	ended  chan struct{}
	lib    *zmq4.Conn
}

// open performs the handshake with a peer. If the context ends meanwhile, the connection is closed.
func open(ctx context.Context, raw net.Conn, kind zmq4.SocketType, server bool) (c *conn, err error) {
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Now()) })()
	c = &conn{wire: newWire(buffered{raw, bufio.NewReader(raw)}), most: maxQueue, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	if kind == zmq4.Pub {
		c.most = maxPublished
	}
	defer func() {
		if r := recover(); r != nil { // the library reads past the end of some messages, and panics for unknown socket types
			err = errors.New("it introduces itself by what is no READY of a ZeroMQ socket")
		}
		if err != nil {
			_ = raw.Close() // report the first error
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

// send queues a message, to be written in one piece.
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

// write writes queued messages until the connection ends.
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

// run reads messages until the connection ends, and returns the reason. The connection is closed then.
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

// end ends the connection. The first reason counts.
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
	_ = c.wire.Close() // it is not used any more
}

// enveloped returns the body of a message of a REQ, REP, DEALER or ROUTER socket.
func enveloped(parts [][]byte) ([]byte, error) {
	if len(parts) != 2 || len(parts[0]) != 0 {
		return nil, errors.New("it sends no request or reply of an empty delimiter and one part")
	}
	return parts[1], nil
}

func envelope(body []byte) []byte {
	return appendFrame(appendFrame(make([]byte, 0, 2+9+len(body)), nil, true), body, false)
}
