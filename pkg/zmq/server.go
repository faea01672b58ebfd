// SPDX-License-Identifier: Apache-2.0

package zmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
)

// acceptPause is the pause after a failure to accept connections, as for lack of file descriptors.
const acceptPause = time.Second

// Request is a peer's request.
type Request struct {
	Body []byte
	conn *conn
}

// Reply answers the request. It doesn't wait for the peer; a peer that is gone gets nothing.
func (r Request) Reply(body []byte) { r.conn.send(envelope(body)) }

// Server is a bound REP or ROUTER socket.
type Server struct {
	Config
	// Take receives a request. Until it returns, nothing more is read from that peer.
	Take func(Request)
}

// Serve accepts requests until the context ends; then it closes the listener and returns nil.
func (s Server) Serve(ctx context.Context, l net.Listener) error {
	return serve(ctx, s.Config, l, zmq4.Router, func(ctx context.Context, c *conn) error {
		return c.run(ctx, func(parts [][]byte) error {
			body, err := enveloped(parts)
			if err == nil {
				s.Take(Request{body, c})
			}
			return err
		})
	})
}

// serve runs each for every connection, concurrently.
func serve(ctx context.Context, cfg Config, l net.Listener, kind zmq4.SocketType, each func(context.Context, *conn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // nothing can be lost
	for {
		raw, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("%s: accept connections: %w", cfg.Name, err)
		case err != nil:
			cfg.Logger.Warn("connections are not accepted, trying again", "socket", cfg.Name, "reason", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		serving.Go(func() {
			c, err := open(ctx, raw, kind, true)
			if err == nil {
				err = each(ctx, c)
			}
			if ctx.Err() == nil && !errors.Is(err, io.EOF) {
				cfg.lost(raw.RemoteAddr().String(), err)
			}
		})
	}
}

const (
	// maxSubscriptions and maxTopic bound what is stored for a subscriber.
	maxSubscriptions = 1 << 16
	maxTopic         = 255
)

// Publisher is a bound PUB socket.
type Publisher struct {
	cfg        Config
	subscribed func(topic string)

	mu   sync.Mutex
	subs map[string]map[*conn]struct{} // by prefix of the topics
}

// NewPublisher returns a publisher. It calls subscribed for each subscription, even if another peer has the same one,
// once publications reach it. Until subscribed returns, nothing more is read from that peer.
func NewPublisher(cfg Config, subscribed func(topic string)) *Publisher {
	return &Publisher{cfg: cfg, subscribed: subscribed, subs: map[string]map[*conn]struct{}{}}
}

// Publish sends a message to all subscribers of a prefix of the topic. It waits for none of them. The error says that
// the message is too large for any peer.
func (p *Publisher) Publish(topic string, body []byte) error {
	if len(body) > MaxMessage {
		return fmt.Errorf("a publication of %d bytes: at most %d can be sent", len(body), MaxMessage)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var message []byte
	told := map[*conn]struct{}{}
	for i := range len(topic) + 1 {
		for c := range p.subs[topic[:i]] {
			if _, is := told[c]; is {
				continue
			}
			if message == nil {
				message = appendFrame(appendFrame(make([]byte, 0, 2+len(topic)+9+len(body)), []byte(topic), true), body, false)
			}
			told[c] = struct{}{}
			c.send(message)
		}
	}
	return nil
}

// Serve accepts subscriptions until the context ends; then it closes the listener and returns nil.
func (p *Publisher) Serve(ctx context.Context, l net.Listener) error {
	return serve(ctx, p.cfg, l, zmq4.Pub, func(ctx context.Context, c *conn) error {
		own := map[string]struct{}{}
		defer p.forget(c, own)
		return c.run(ctx, func(parts [][]byte) error {
			if len(parts) != 1 || len(parts[0]) == 0 || parts[0][0] > 1 {
				return errors.New("it sends no subscription: a byte 1 or 0 and the topic")
			}
			topic := string(parts[0][1:])
			switch {
			case parts[0][0] == 0:
				p.forget(c, map[string]struct{}{topic: {}})
				delete(own, topic)
				return nil
			case len(topic) > maxTopic:
				return fmt.Errorf("it subscribes to a topic of %d bytes: at most %d are taken", len(topic), maxTopic)
			case len(own) == maxSubscriptions:
				return fmt.Errorf("it subscribes to more than %d topics", maxSubscriptions)
			}
			own[topic] = struct{}{}
			p.add(c, topic)
			p.subscribed(topic)
			return nil
		})
	})
}

func (p *Publisher) add(c *conn, topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subs[topic] == nil {
		p.subs[topic] = map[*conn]struct{}{}
	}
	p.subs[topic][c] = struct{}{}
}

func (p *Publisher) forget(c *conn, topics map[string]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic := range topics {
		delete(p.subs[topic], c)
		if len(p.subs[topic]) == 0 {
			delete(p.subs, topic)
		}
	}
}
