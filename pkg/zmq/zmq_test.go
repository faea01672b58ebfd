// SPDX-License-Identifier: Apache-2.0

package zmq

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/zmqpeer"
)

// running runs a socket until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, ended); err != nil {
			t.Errorf("the socket ended: %v", err)
		}
	})
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	return eventually.Receive(t, "what is to come", from)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func config() Config { return Config{Name: "test API", Logger: slog.New(slog.DiscardHandler)} }

// echo serves requests by repeating them, and returns where.
func echo(t *testing.T, cfg Config) string {
	t.Helper()
	l := listen(t)
	s := Server{Config: cfg, Take: func(r Request) { r.Reply(append([]byte("re "), r.Body...)) }}
	running(t, func(ctx context.Context) error { return s.Serve(ctx, l) })
	return l.Addr().String()
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%.80q came, want %.80q", got, want)
	}
}

// TestServer: REQ and DEALER sockets of libzmq are answered, each what it asked.
func TestServer(t *testing.T) {
	at := echo(t, config())
	p := zmqpeer.Start(t)
	req, other, dealer := p.Connect("REQ", at, nil), p.Connect("REQ", at, nil), p.Connect("DEALER", at, nil)
	large := strings.Repeat("x", MaxMessage-3)
	for range 2 {
		req.Send("one")
		other.Send(large)
		dealer.Send("", "two")
		dealer.Send("", "")
		want(t, req.Receive(), "re one")
		want(t, other.Receive(), "re "+large)
		want(t, dealer.Receive(), "", "re two")
		want(t, dealer.Receive(), "", "re ")
	}
}

// TestKeepalives: a peer that sends PING is answered while it is told much.
func TestKeepalives(t *testing.T) {
	at := echo(t, config())
	p := zmqpeer.Start(t)
	dealer := p.Connect("DEALER", at, map[string]int{"HEARTBEAT_IVL": 1, "HEARTBEAT_TIMEOUT": 5000})
	text := strings.Repeat("x", 1000)
	for range 500 {
		dealer.Send("", text)
		want(t, dealer.Receive(), "", "re "+text)
	}
}

type requester struct {
	*Requester
	replies chan Reply
	stands  chan error
}

func newRequester(t *testing.T, address string) requester {
	t.Helper()
	r := requester{replies: make(chan Reply, 100), stands: make(chan error, 1000)}
	r.Requester = &Requester{Peer: Peer{Config: config(), Address: address, Stands: func(err error) { r.stands <- err }}, Take: func(rep Reply) { r.replies <- rep }}
	running(t, r.Run)
	return r
}

func (r requester) connected(t *testing.T) {
	t.Helper()
	for receive(t, r.stands) != nil {
	}
}

// TestRequester: what is asked is answered by libzmq's ROUTER and REP, and asked again of a peer that was started anew.
func TestRequester(t *testing.T) {
	p := zmqpeer.Start(t)
	for _, kind := range []string{"ROUTER", "REP"} {
		peer := p.Bind(kind, "127.0.0.1:*", nil)
		asked := func(want string) (answer func(string)) {
			t.Helper()
			parts := peer.Receive()
			envelope := parts[:len(parts)-1]
			if got := parts[len(parts)-1]; got != want {
				t.Errorf("%s: asked %q, want %q", kind, got, want)
			}
			return func(s string) { peer.Send(append(envelope, s)...) }
		}
		r := newRequester(t, peer.At)
		r.Ask([]byte("one"))
		asked("one")("two")
		reply := receive(t, r.replies)
		if string(reply.Body) != "two" || !r.Accept(reply) || r.Accept(reply) {
			t.Errorf("%s: the reply is %q", kind, reply.Body)
		}
		r.Ask([]byte("three"))
		asked("three")
		r.connected(t)
		peer.Close()
		if err := receive(t, r.stands); err == nil || !strings.Contains(err.Error(), "test API at "+peer.At+": ") {
			t.Errorf("%s: a peer that closed: %v", kind, err)
		}
		peer = p.Bind(kind, peer.At, nil)
		late := asked("three")
		r.Forget()
		r.Ask([]byte("four"))
		late("too late")
		asked("four")("five")
		if reply := receive(t, r.replies); string(reply.Body) != "five" || !r.Accept(reply) {
			t.Errorf("%s: the reply is %q", kind, reply.Body)
		}
	}
}

// publisher has a publisher whose subscriptions are told.
func publisher(t *testing.T, cfg Config) (p *Publisher, at string, subscribed chan string) {
	t.Helper()
	subscribed = make(chan string, 2*maxSubscriptions)
	p = NewPublisher(cfg, func(topic string) { subscribed <- topic })
	l := listen(t)
	running(t, func(ctx context.Context) error { return p.Serve(ctx, l) })
	return p, l.Addr().String(), subscribed
}

func publish(t *testing.T, p *Publisher, topic, body string) {
	t.Helper()
	if err := p.Publish(topic, []byte(body)); err != nil {
		t.Error(err)
	}
}

// TestPublisher: SUB sockets of libzmq get what they subscribed to, once, and each subscription is told, a second peer's too.
func TestPublisher(t *testing.T) {
	p, at, subscribed := publisher(t, config())
	process := zmqpeer.Start(t)
	a, b := process.Connect("SUB", at, nil), process.Connect("SUB", at, nil)
	for _, s := range []*zmqpeer.Socket{a, b} {
		s.Subscribe("topic")
		if got := receive(t, subscribed); got != "topic" {
			t.Errorf("the subscription is to %q", got)
		}
	}
	a.Subscribe("top")
	if got := receive(t, subscribed); got != "top" {
		t.Errorf("the subscription is to %q", got)
	}
	large := strings.Repeat("x", MaxMessage)
	publish(t, p, "to", "nobody's")
	publish(t, p, "topic", large)
	publish(t, p, "topic.more", "2")
	for _, s := range []*zmqpeer.Socket{a, b} {
		want(t, s.Receive(), "topic", large)
		want(t, s.Receive(), "topic.more", "2")
	}
	b.Unsubscribe("topic")
	b.Subscribe("end")
	receive(t, subscribed)
	publish(t, p, "topic", "3")
	publish(t, p, "end", "4")
	want(t, a.Receive(), "topic", "3")
	want(t, b.Receive(), "end", "4")
	if err := p.Publish("topic", make([]byte, MaxMessage+1)); err == nil {
		t.Error("what no peer takes is published")
	}
}

// TestSubscriber: a subscriber gets what libzmq publishes, over each connection anew.
func TestSubscriber(t *testing.T) {
	process := zmqpeer.Start(t)
	for _, kind := range []string{"PUB", "XPUB"} {
		peer := process.Bind(kind, "127.0.0.1:*", nil)
		type publication struct{ topic, body string }
		got, stands := make(chan publication, 100), make(chan error, 1000)
		s := &Subscriber{
			Peer: Peer{Config: config(), Address: peer.At, Stands: func(err error) { stands <- err }},
			Take: func(topic string, body []byte) { got <- publication{topic, string(body)} },
		}
		s.Subscribe("before")
		running(t, s.Run)
		s.Subscribe("gone")
		s.Unsubscribe("gone")
		for range 2 {
			for receive(t, stands) != nil {
			}
			s.Subscribe("after")
			// Subscriptions take effect when libzmq comes to it.
			for _, topic := range []string{"before", "after"} {
				eventually.True(t, "a publication comes", func() bool {
					peer.Send("gone", "0")
					peer.Send(topic, "1")
					select {
					case p := <-got:
						if p.topic == "gone" {
							t.Errorf("%s: a topic comes that isn't wanted any more", kind)
						}
						return p == publication{topic, "1"}
					default:
						return false
					}
				})
			}
			peer.Close()
			peer = process.Bind(kind, peer.At, nil)
		}
	}
}

// TestSlow: a peer that doesn't read loses its connection, and no other notices.
func TestSlow(t *testing.T) {
	reasons := make(chan string, 10)
	cfg := config()
	cfg.Logger = slog.New(logged(reasons))
	p, at, subscribed := publisher(t, cfg)
	process := zmqpeer.Start(t)
	slow, other := process.Connect("SUB", at, map[string]int{"RCVHWM": 1, "RECONNECT_IVL": -1}), process.Connect("SUB", at, nil)
	slow.Pause()
	slow.Subscribe("")
	other.Subscribe("end")
	receive(t, subscribed)
	receive(t, subscribed)
	body := strings.Repeat("x", MaxMessage)
	for published := 0; ; published++ {
		publish(t, p, "t", body)
		publish(t, p, "end", "0")
		want(t, other.Receive(), "end", "0")
		select {
		case reason := <-reasons:
			if !strings.Contains(reason, "it doesn't read") {
				t.Errorf("the peer is lost: %s", reason)
			}
			publish(t, p, "end", "1")
			want(t, other.Receive(), "end", "1")
			return
		default:
		}
		if published > 2*maxPublished/MaxMessage {
			t.Fatal("a peer that doesn't read is kept")
		}
	}
}

// logged passes on the reasons of what is logged.
type logged chan string

func (l logged) Enabled(context.Context, slog.Level) bool { return true }
func (l logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l logged) WithGroup(string) slog.Handler            { return l }
func (l logged) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			l <- a.Value.String()
		}
		return true
	})
	return nil
}
