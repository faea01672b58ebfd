// SPDX-License-Identifier: Apache-2.0

// Package serving runs the HTTP servers of a daemon, for health and for metrics. They move to other addresses while the daemon runs, as its
// settings say.
package serving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/server"
)

const (
	// listenPause is when an address that could not be listened on is tried again.
	listenPause = 2 * time.Second
	// drainPause is how long requests may take to finish when their server moves.
	drainPause = time.Second
)

// Servers are the two HTTP servers of a daemon.
type Servers struct {
	problems *problems.Ledger
	wake     mailbox.Signal
	health   *endpoint
	metrics  *endpoint
	served   chan struct{}

	mu   sync.Mutex
	want [2]Address // health, metrics
}

// New returns servers that serve nothing yet; health and metrics will answer the requests.
func New(p *problems.Ledger, health, metrics http.Handler) *Servers {
	return &Servers{
		problems: p, wake: mailbox.NewSignal(), served: make(chan struct{}),
		health:  &endpoint{what: "health", params: "Health", handler: health, limit: server.LimitOldest},
		metrics: &endpoint{what: "metrics", params: "PrometheusMetrics", handler: metrics, limit: server.Limit},
	}
}

// AddPage adds a page beside health, by its pattern for http.ServeMux. It must be called before anything is served.
func (s *Servers) AddPage(pattern string, page http.Handler) {
	pages := http.NewServeMux()
	pages.Handle("/", s.health.handler)
	pages.Handle(pattern, page)
	s.health.handler = pages
}

// Configure sets where to serve; it does not wait.
func (s *Servers) Configure(health, metrics Address) {
	s.mu.Lock()
	want := [2]Address{health, metrics}
	changed := s.want != want
	s.want = want
	s.mu.Unlock()
	if changed {
		s.wake.Send()
	}
}

// Served returns a channel that is closed once health is first served where it should be, or is off.
func (s *Servers) Served() <-chan struct{} { return s.served }

// Move moves every server to where it should be. An error means that the server stays where it was, or is off.
func (s *Servers) Move() (health, metrics error) {
	s.mu.Lock()
	want := s.want
	s.mu.Unlock()
	clash := want[0].clashes(want[1])
	if clash && s.metrics.samePort(want[1].String()) {
		s.metrics.close(drainPause) // health comes first, whoever had the port
	}
	health = s.health.move(want[0].String())
	select {
	case <-s.served:
	default:
		if health == nil {
			close(s.served)
		}
	}
	if clash {
		metrics = fmt.Errorf("serve metrics on %s: HealthPort and PrometheusMetricsPort are both %d, which is for health: set one of them to another port, or PrometheusMetricsEnabled to false",
			want[1].String(), want[1].Port)
	} else {
		metrics = s.metrics.move(want[1].String())
	}
	s.say(s.health, health)
	s.say(s.metrics, metrics)
	return health, metrics
}

// say reports why a server isn't where it should be, with the parameter to change.
func (s *Servers) say(srv *endpoint, err error) {
	host, port := error(nil), err
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		host, port = err, nil
	}
	s.problems.ReportSetting(srv.params+"Host", host, srv.stand())
	s.problems.ReportSetting(srv.params+"Port", port, srv.stand())
}

// Run serves until the context ends. The error is always nil.
func (s *Servers) Run(ctx context.Context) error {
	defer s.Close()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-s.health.ended:
			s.health.forget()
		case <-s.metrics.ended:
			s.metrics.forget()
		case <-retry.C:
		}
		if err := errors.Join(s.Move()); err != nil {
			retry.Reset(listenPause)
		}
	}
}

// Close stops both servers at once, cutting off requests under way.
func (s *Servers) Close() {
	s.health.close(0)
	s.metrics.close(0)
}

// endpoint is one HTTP server, or none at present.
type endpoint struct {
	what    string
	params  string // the prefix of its parameters' names
	handler http.Handler
	limit   func(net.Listener, int) net.Listener

	address string // "" = none
	http    *http.Server
	ended   chan struct{} // closed when the server ended; nil = none
}

// stand describes where the server serves.
func (s *endpoint) stand() string {
	if s.address == "" {
		return "not served"
	}
	return s.address
}

// move makes the server serve at the address, "" = off. It listens on the new address before it leaves the old one, if it can.
func (s *endpoint) move(address string) error {
	if address == s.address {
		return nil
	}
	if address == "" {
		s.close(drainPause)
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) && s.samePort(address) {
		before := s.address
		s.close(drainPause)
		if listener, err = net.Listen("tcp", address); err != nil {
			if back, backErr := net.Listen("tcp", before); backErr == nil {
				s.serve(before, back)
			}
		}
	}
	if err != nil {
		advice := "free the port, or choose another address, or 0 for none"
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			advice = "no link of this host has the address: choose one that it has, or nothing for all"
		}
		return fmt.Errorf("serve %s on %s: %w: %s", s.what, address, err, advice)
	}
	s.close(drainPause)
	s.serve(address, listener)
	return nil
}

func (s *endpoint) samePort(address string) bool {
	_, before, _ := net.SplitHostPort(s.address)
	_, after, _ := net.SplitHostPort(address)
	return before == after
}

func (s *endpoint) serve(address string, l net.Listener) {
	h := server.HTTP(s.handler)
	ended := make(chan struct{})
	s.address, s.http, s.ended = address, h, ended
	go func() {
		defer close(ended)
		_ = h.Serve(s.limit(l, server.Connections)) // Run starts it again, and reports why if that fails
	}()
}

// close stops the server once requests under way are done, or after the pause.
func (s *endpoint) close(pause time.Duration) {
	if s.http == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pause)
	defer cancel()
	_ = s.http.Shutdown(ctx) // what is left is cut off
	_ = s.http.Close()
	<-s.ended
	s.forget()
}

func (s *endpoint) forget() { s.address, s.http, s.ended = "", nil, nil }
