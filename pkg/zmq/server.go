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

// acceptPause is after which connections are accepted again where that failed, as for want of file descriptors.
const acceptPause = time.Second

// Request is what a peer asks.
type Request struct {
	Body []byte
	conn *conn
}

// Reply answers the request. It doesn't wait for the peer; one that is gone gets nothing.
func (r Request) Reply(body []byte) { r.conn.send(envelope(body)) }

// Server is a REP or ROUTER socket that is bound.
type Server struct {
	Config
	// Take takes a request. While it doesn't return, nothing more is read of that peer.
	Take func(Request)
}

// Serve takes requests of all who connect, until the context ends, when it closes the listener and returns nil.
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

// serve has each connection served by itself.
func serve(ctx context.Context, cfg Config, l net.Listener, kind zmq4.SocketType, each func(context.Context, *conn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // there is nothing to lose
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
	// maxSubscriptions and maxTopic bound what is kept of a subscriber.
	maxSubscriptions = 1 << 16
	maxTopic         = 255
)

// Publisher is a PUB socket that is bound.
type Publisher struct {
	cfg        Config
	subscribed func(topic string)

	mu   sync.Mutex
	subs map[string]map[*conn]struct{} // by the topics' beginning
}

// NewPublisher returns a publisher that tells each subscription, those included that another peer has too, once what is
// published reaches it. While subscribed doesn't return, nothing more is read of that peer.
func NewPublisher(cfg Config, subscribed func(topic string)) *Publisher {
	return &Publisher{cfg: cfg, subscribed: subscribed, subs: map[string]map[*conn]struct{}{}}
}

// Publish sends a message to all that subscribed to a beginning of the topic. It waits for nobody. The error says that the
// message is too large for any peer.
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

// Serve takes subscriptions of all who connect, until the context ends, when it closes the listener and returns nil.
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
