// SPDX-License-Identifier: Apache-2.0

// Package classicd runs the three roles of the 2014 APIs over ZeroMQ: Felix, the ACL manager and the plugin. Package classic makes their
// decisions. Each role is one goroutine that takes events and carries out the actions that follow; sockets and etcd only bring events.
package classicd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/calico-go/calico/pkg/classic"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/server"
	"github.com/calico-go/calico/pkg/zmq"
)

// Ports of the APIs, grouped by the role that binds them.
const (
	portPlugin      = 9901 // Felix asks the plugin
	portFelix       = 9902 // the plugin tells Felix
	portGroups      = 9903 // the ACL manager asks the plugin
	portGroupNews   = 9904 // the plugin publishes groups
	portACLs        = 9905 // Felix asks the ACL manager
	portPublication = 9906 // the ACL manager publishes ACLs
)

const (
	// eventBuffer is how many events wait for the role's goroutine; when it is full, their senders block.
	eventBuffer = 1024
	// maxConnections bounds the connections of a socket, and eight from one source: each host of a system has one or two.
	maxConnections = 8 << 10
	// logsPerSecond bounds the log after the first logsAtOnce lines: peers can cause a line with each message.
	logsPerSecond, logsAtOnce = 10, 200
	// beat is how often an idle role shows that it is alive.
	beat = 10 * time.Second
)

// machine is a role's state machine in package classic.
type machine interface {
	Start(now time.Time) []classic.Action
	Tick(now time.Time) []classic.Action
	Next() time.Time
}

// event makes a machine process what happened, and returns its actions.
type event func(now time.Time) []classic.Action

// role is what the three roles have in common.
type role struct {
	log      *slog.Logger
	health   *health.Monitor
	problems *problems.Ledger
	metrics  metrics
	bind     string
	events   chan event
	ended    chan struct{}
}

func newRole(env run.Env, bind string) *role {
	return &role{
		log: slog.New(calm{env.Logger.Handler(), rate.NewLimiter(logsPerSecond, logsAtOnce)}), health: env.Health, problems: env.Problems, metrics: newMetrics(env.Metrics), bind: bind,
		events: make(chan event, eventBuffer), ended: make(chan struct{}),
	}
}

// calm drops log records that come too often.
type calm struct {
	slog.Handler
	rate *rate.Limiter
}

// Handle implements slog.Handler.
func (c calm) Handle(ctx context.Context, r slog.Record) error {
	if !c.rate.Allow() {
		return nil
	}
	return c.Handler.Handle(ctx, r)
}

// heard counts a message from a socket and passes it to the machine.
func (r *role) heard(socket string, e event) {
	r.metrics.messages.WithLabelValues(socket).Inc()
	r.happened(e)
}

// happened passes an event to the machine. It blocks while too many wait.
func (r *role) happened(e event) {
	select {
	case r.events <- e:
	case <-r.ended:
	}
}

// run drives the machine until the context ends; the error is always nil. do carries out the actions that are specific to the role. turned
// is called after each turn, and its actions are carried out.
func (r *role) run(ctx context.Context, m machine, do func(classic.Action), turned func(now time.Time) []classic.Action) error {
	defer close(r.ended)
	act := func(actions []classic.Action) {
		for _, a := range actions {
			switch a := a.(type) {
			case classic.Reply:
				a.From.(zmq.Request).Reply(a.Body)
			case classic.Log:
				level := slog.LevelInfo
				if a.Problem {
					level = slog.LevelWarn
				}
				r.log.Log(ctx, level, a.Text)
			case classic.List:
				r.list(a.About, a.Err)
			default:
				do(a)
			}
		}
	}
	act(m.Start(time.Now()))
	for timer := time.NewTimer(0); ctx.Err() == nil; {
		timer.Reset(min(time.Until(m.Next()), beat))
		select {
		case <-ctx.Done():
		case e := <-r.events:
			act(e(time.Now()))
		case <-timer.C:
			act(m.Tick(time.Now()))
		}
		act(turned(time.Now()))
	}
	return nil
}

// listed is the kind of the problems that list records.
const listed = "message"

// list records at /debug/invalid what is wrong with something; err == nil clears it.
func (r *role) list(about string, err error) {
	switch before, after := r.problems.Note(listed, about, err); {
	case before == after:
	case after == "":
		r.metrics.invalid.Dec()
		r.log.Info(about + ": in order again")
	default:
		if before == "" {
			r.metrics.invalid.Inc()
		}
		r.log.Warn(about+": not in order", "reason", after)
	}
}

// stands returns a function that records the state of a connection to a peer, nil = connected: /readiness says since when there is none.
// Felix is ready all the same, as the host has what it was told; the other roles are not. connected is called with each new connection.
func (r *role) stands(name string, connected func()) func(error) {
	r.health.SetEtcd(name, name+": not connected yet")
	is := r.metrics.connected.WithLabelValues(name)
	var since time.Time
	return func(err error) {
		switch {
		case err == nil:
			since = time.Time{}
			is.Set(1)
			r.log.Info("connected", "to", name)
			r.health.SetEtcd(name, "")
			connected()
			return
		case since.IsZero():
			since = time.Now()
			is.Set(0)
			r.log.Warn("not connected", "reason", err)
		}
		r.health.SetEtcd(name, fmt.Sprintf("%v, since %s", err, since.UTC().Format(time.RFC3339)))
	}
}

func (r *role) socket(name string) zmq.Config { return zmq.Config{Name: name, Logger: r.log} }

func (r *role) peer(name, host string, port int, stands func(error)) zmq.Peer {
	return zmq.Peer{Config: r.socket(name), Address: net.JoinHostPort(host, strconv.Itoa(port)), Stands: stands}
}

// requester returns a socket that asks; answered is how the machine processes the reply to the last request.
func (r *role) requester(peer zmq.Peer, answered func(now time.Time, body []byte) []classic.Action) *zmq.Requester {
	q := &zmq.Requester{Peer: peer}
	q.Take = func(reply zmq.Reply) {
		r.heard(peer.Name, func(now time.Time) []classic.Action {
			if !q.Accept(reply) {
				return nil
			}
			return answered(now, reply.Body)
		})
	}
	return q
}

// asks is requester for a peer whose connection is reported as in stands.
func (r *role) asks(name, host string, port int, answered func(now time.Time, body []byte) []classic.Action) *zmq.Requester {
	return r.requester(r.peer(name, host, port, r.stands(name, func() {})), answered)
}

// listen listens on a port.
func (r *role) listen(name string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(r.bind, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: end what has the port, or choose another address with -bind", name, err)
	}
	return server.Limit(l, maxConnections), nil
}

// requests returns a server that passes peers' requests to the machine.
func (r *role) requests(name string, take func(now time.Time, from any, body []byte) []classic.Action) zmq.Server {
	return zmq.Server{Config: r.socket(name), Take: func(q zmq.Request) {
		r.heard(name, func(now time.Time) []classic.Action { return take(now, q, q.Body) })
	}}
}

// publisher returns a publisher that passes new subscriptions to the machine.
func (r *role) publisher(name string, subscribed func(now time.Time, topic string) []classic.Action) *zmq.Publisher {
	return zmq.NewPublisher(r.socket(name), func(topic string) {
		r.happened(func(now time.Time) []classic.Action { return subscribed(now, topic) })
	})
}

// publish publishes, and lists a publication that is too large.
func (r *role) publish(p *zmq.Publisher, a classic.Publish) {
	r.list("publication "+a.Topic, p.Publish(a.Topic, a.Body))
}

// subscriber returns a subscriber that passes publications to the machine.
func (r *role) subscriber(name, host string, port int, connected event, published func(now time.Time, topic string, body []byte) []classic.Action) *zmq.Subscriber {
	return &zmq.Subscriber{Peer: r.peer(name, host, port, r.stands(name, func() { r.happened(connected) })), Take: func(topic string, body []byte) {
		r.heard(name, func(now time.Time) []classic.Action { return published(now, topic, body) })
	}}
}

// together runs the parts of a role until one fails or the context ends.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

// lives records that a role that is the whole program is alive.
func (r *role) lives(time.Time) []classic.Action {
	r.health.Turn()
	return nil
}

// common returns the options of all roles.
func common(bind *string) []run.Option {
	return []run.Option{{Flag: "bind", Variable: "CALICO_CLASSIC_BIND", Help: "IP address that sockets are bound to; default: all of this host", Set: func(s string) error {
		if *bind = s; s != "" && net.ParseIP(s) == nil {
			return fmt.Errorf("%q: want an IP address of this host", s)
		}
		return nil
	}}}
}

// hostOption returns the option for a peer's host.
func hostOption(flag, variable, help string, p *string) run.Option {
	return run.Option{Flag: flag, Variable: variable, Help: help, Set: func(s string) error {
		if *p = strings.TrimSpace(s); *p == "" {
			return errors.New("it is required: the host name or IP address")
		}
		return checkPeer(*p)
	}}
}

// checkPeer returns an error unless s is a host name or an IP address alone.
func checkPeer(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if s == "" || strings.ContainsAny(s, ":/[] ") {
		return fmt.Errorf("%q: want a host name or an IP address, without a port", s)
	}
	return nil
}

// every returns the option for a time.
func every(flag, initial, help string, p *time.Duration) run.Option {
	return run.Option{Flag: flag, Variable: "CALICO_CLASSIC_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")), Initial: initial, Help: help, Set: run.Duration(p)}
}
