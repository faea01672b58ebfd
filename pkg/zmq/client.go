// SPDX-License-Identifier: Apache-2.0

package zmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/calico-go/calico/pkg/retry"
)

const (
	dialTimeout = 5 * time.Second
	// leastPause and mostPause bound the pause between two attempts to connect.
	leastPause = 50 * time.Millisecond
	mostPause  = 3 * time.Second
	// provenAfter is how long a connection must have lasted for an immediate attempt to reconnect.
	provenAfter = 5 * time.Second
)

// Peer is the peer that a socket connects to.
type Peer struct {
	Config
	// Address is the peer's host:port. The name is resolved at each attempt.
	Address string
	// Stands is called with the reason whenever there is no connection; with nil, there is one, and publications arrive
	// (again).
	Stands func(error)
}

// link is the connection of a socket to its peer.
type link struct {
	mu   sync.Mutex
	conn *conn // nil if there is none
}

// dial keeps a connection until the context ends. Each connection begins with what greet sends.
func (l *link) dial(ctx context.Context, p Peer, kind zmq4.SocketType, greet func(), take func(parts [][]byte) error) error {
	backoff := retry.Backoff{First: leastPause, Longest: mostPause}
	for ctx.Err() == nil {
		began := time.Now()
		err := l.connect(ctx, p, kind, greet, take)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("it closed the connection")
		}
		p.Stands(fmt.Errorf("%s at %s: %w; trying again", p.Name, p.Address, err))
		if time.Since(began) > provenAfter {
			backoff.Reset()
		}
		_ = retry.Wait(ctx, backoff.Next()) // the loop checks the context
	}
	return nil
}

func (l *link) connect(ctx context.Context, p Peer, kind zmq4.SocketType, greet func(), take func(parts [][]byte) error) error {
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return err
	}
	c, err := open(ctx, raw, kind, false)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.conn = c
	greet()
	l.mu.Unlock()
	p.Stands(nil)
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conn = nil
	}()
	return c.run(ctx, take)
}

// send sends a message if there is a connection. l.mu must be held.
func (l *link) send(message []byte) {
	if l.conn != nil {
		l.conn.send(message)
	}
}

// Reconnect closes the connection, so that another is made.
func (l *link) Reconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.end(errors.New("this side connects anew"))
		l.conn = nil
	}
}

// Requester is a REQ socket that connects. If the connection breaks, a pending request is repeated over the next one:
// the requests of these APIs may be repeated.
type Requester struct {
	Peer
	// Take receives a message, which is a reply only if Accept says so.
	Take func(Reply)

	link
	asked *question // nil if there is no request
}

type question struct{ message []byte }

// Reply is a message received after a request.
type Reply struct {
	Body []byte
	of   *question
}

// Ask sends a request. An earlier request gets no answer any more.
func (r *Requester) Ask(body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = &question{envelope(body)}
	r.send(r.asked.message)
}

// Accept reports whether a reply is the first one to the latest request. Then no request is pending any more.
func (r *Requester) Accept(reply Reply) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := reply.of != nil && reply.of == r.asked
	if is {
		r.asked = nil
	}
	return is
}

// Forget drops a pending request and reconnects.
func (r *Requester) Forget() {
	r.mu.Lock()
	r.asked = nil
	r.mu.Unlock()
	r.Reconnect()
}

// Run keeps the socket connected until the context ends; the error is always nil.
func (r *Requester) Run(ctx context.Context) error {
	return r.dial(ctx, r.Peer, zmq4.Req, func() {
		if r.asked != nil {
			r.send(r.asked.message)
		}
	}, func(parts [][]byte) error {
		body, err := enveloped(parts)
		if err != nil {
			return err
		}
		r.mu.Lock()
		of := r.asked
		r.mu.Unlock()
		r.Take(Reply{body, of})
		return nil
	})
}

// Subscriber is a SUB socket that connects.
type Subscriber struct {
	Peer
	// Take receives a publication. Until it returns, nothing more is read.
	Take func(topic string, body []byte)

	link
	topics map[string]struct{}
}

// Subscribe subscribes to topics with this prefix, now and on every later connection.
func (s *Subscriber) Subscribe(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics == nil {
		s.topics = map[string]struct{}{}
	}
	s.topics[topic] = struct{}{}
	s.send(subscription(1, topic))
}

// Unsubscribe ends a subscription.
func (s *Subscriber) Unsubscribe(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.topics, topic)
	s.send(subscription(0, topic))
}

func subscription(on byte, topic string) []byte {
	return appendFrame(nil, append([]byte{on}, topic...), false)
}

// Run keeps the socket connected until the context ends; the error is always nil.
func (s *Subscriber) Run(ctx context.Context) error {
	return s.dial(ctx, s.Peer, zmq4.Sub, func() {
		for topic := range maps.Keys(s.topics) {
			s.send(subscription(1, topic))
		}
	}, func(parts [][]byte) error {
		if len(parts) != 2 {
			return errors.New("it sends no publication of a topic and a body")
		}
		s.Take(string(parts[0]), parts[1])
		return nil
	})
}
