// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/ports"
)

// TestServing moves the servers about while they serve.
func TestServing(t *testing.T) {
	say := func(what string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, what) })
	}
	p := problems.New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	s := New(p, say("health"), say("metrics"))
	ask := func(addr string) string {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventually.Limit}
		r, err := client.Get("http://" + addr + "/")
		if err != nil {
			return ""
		}
		defer func() { _ = r.Body.Close() }()
		body, _ := io.ReadAll(r.Body)
		return string(body)
	}
	until := func(what string, met func() bool) {
		t.Helper()
		eventually.True(t, what, met)
	}
	at := func(addr string) Address {
		a := netip.MustParseAddrPort(addr)
		return Address{Enabled: true, Host: a.Addr().String(), Port: a.Port()}
	}
	free := ports.Free(t, 3)
	a, b, c := free[0], free[1], free[2]
	s.Configure(at(a), at(b))
	if health, metrics := s.Move(); health != nil || metrics != nil {
		t.Fatal(health, metrics)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	if ask(a) != "health" || ask(b) != "metrics" {
		t.Errorf("at first: %q, %q", ask(a), ask(b))
	}

	s.Configure(at(c), Address{})
	until("health elsewhere, metrics off", func() bool { return ask(c) == "health" && ask(a) == "" && ask(b) == "" })

	// the same port at all addresses: the former has to go first
	all := at(c)
	all.Host = ""
	s.Configure(all, at(a))
	other := "127.0.0.2" + strings.TrimPrefix(c, "127.0.0.1")
	until("health everywhere", func() bool { return ask(other) == "health" && ask(a) == "metrics" })

	// a port that another program has: it stays where it is until that is free
	taken, err := net.Listen("tcp", b)
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(at(b), at(a))
	until("report", func() bool { return p.Count() == 1 })
	if got := p.All()[0]; got.Path != "HealthPort" || !strings.Contains(got.Reason, "serve health on "+b) {
		t.Errorf("%+v", got)
	}
	if ask(c) != "health" {
		t.Error("it left before it had where to go")
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	until("health where it is wanted", func() bool { return ask(b) == "health" && p.Count() == 0 })

	// the same port, and the new host isn't this one's: it goes back
	away := at(b)
	away.Host = "203.0.113.1"
	s.Configure(away, at(a))
	until("report", func() bool { return p.Count() == 1 })
	if got := p.All()[0]; got.Path != "HealthHost" || !strings.Contains(got.Reason, "no link of this host has the address") {
		t.Errorf("%+v", got)
	}
	until("health where it was", func() bool { return ask(b) == "health" })
	s.Configure(at(b), at(a))
	until("all in order", func() bool { return p.Count() == 0 })

	// one port for both: health has it, and metrics come back when they have one of their own
	everywhere := at(a)
	everywhere.Host = ""
	for _, want := range [][2]Address{{at(a), at(a)}, {at(a), everywhere}, {everywhere, at(a)}} {
		s.Configure(want[0], want[1])
		until("health at the port of both, and a report", func() bool { return ask(a) == "health" && p.Count() == 1 })
		port := fmt.Sprint(want[1].Port)
		if got := p.All()[0]; got.Path != "PrometheusMetricsPort" || got.Used != "not served" || !strings.Contains(got.Reason, "HealthPort and PrometheusMetricsPort are both "+port) {
			t.Errorf("%+v", got)
		}
		s.Configure(at(b), at(a))
		until("each at its own", func() bool { return ask(b) == "health" && ask(a) == "metrics" && p.Count() == 0 })
	}

	// a port of both where neither was: health goes there, and metrics stay, as if another program had the port
	s.Configure(at(c), at(c))
	until("health at the port of both, and a report", func() bool { return ask(c) == "health" && p.Count() == 1 })
	if got := p.All()[0]; got.Path != "PrometheusMetricsPort" || got.Used != a || ask(a) != "metrics" {
		t.Errorf("%+v, and at the former port %q", got, ask(a))
	}

	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, addr := range []string{a, b, c} {
		if got := ask(addr); got != "" {
			t.Errorf("%s still says %q", addr, got)
		}
	}
	if got := fmt.Sprint(s.health.stand(), " ", s.metrics.stand()); got != "not served not served" {
		t.Error(got)
	}
}

// TestServed: the channel is closed once health is served where it should be, and not before.
func TestServed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(problems.New(slog.New(slog.DiscardHandler)), http.NotFoundHandler(), http.NotFoundHandler())
	t.Cleanup(s.Close)
	port := taken.Addr().(*net.TCPAddr).Port
	s.Configure(Address{Enabled: true, Host: "127.0.0.1", Port: uint16(port)}, Address{})
	served := func() bool {
		_, _ = s.Move()
		return isClosed(s.Served())
	}
	if served() {
		t.Error("it is served where another listens")
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !served() {
			t.Error("it isn't served where nobody else listens")
		}
	}
	off := New(problems.New(slog.New(slog.DiscardHandler)), http.NotFoundHandler(), http.NotFoundHandler())
	if _, _ = off.Move(); !isClosed(off.Served()) {
		t.Error("what is off is waited for")
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
