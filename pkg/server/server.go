// SPDX-License-Identifier: Apache-2.0

// Package server bounds what clients cost a server: how many connect, how often, and for how long one holds a connection.
package server

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// Connections is how many a server of ours has at once where nothing else is said.
	Connections = 64
	// A source that is not the host itself has a part of them: 1/share, and of new ones 1/perSecond each second, after the first 1/atOnce.
	share, perSecond, atOnce = 8, 6, 2
	// maxSources is of how many sources that have no connection it is known how often they connect.
	maxSources = 1024

	headTimeout = 5 * time.Second
	// Timeout is what a request, its answer, or the wait for the next takes at most.
	Timeout   = 30 * time.Second
	maxHeader = 16 << 10
)

// HTTP returns a server that no client holds up for long. A handler that answers late on purpose
// moves its deadlines by http.ResponseController.
func HTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headTimeout, ReadTimeout: Timeout, WriteTimeout: Timeout, IdleTimeout: Timeout, MaxHeaderBytes: maxHeader,
	}
}

// Limit bounds the connections of a listener. One that is too many is closed at once, so that none waits in
// vain. A source, which of IPv6 is a /64, has a share of them, so that it locks out no other; the host itself and
// Unix sockets have no share.
func Limit(l net.Listener, connections int) net.Listener {
	return &listener{Listener: l, most: connections, sources: map[netip.Addr]*source{}}
}

// LimitOldest is Limit for who answers at once, and must: the oldest connection ends where there are too many, so that
// nobody on the host locks out the kubelet's probes, which come from there too.
func LimitOldest(l net.Listener, connections int) net.Listener {
	return &listener{Listener: l, most: connections, sources: map[netip.Addr]*source{}, endsOldest: true}
}

type listener struct {
	net.Listener
	most       int
	endsOldest bool

	mu      sync.Mutex
	open    []*conn // the oldest first
	sources map[netip.Addr]*source
}

type source struct {
	open int
	rate *rate.Limiter
}

// Accept returns the next connection that is not too many.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: accepted, of: l, from: sourceOf(accepted.RemoteAddr())}
		if l.admit(c) {
			return c, nil
		}
		c.reset()
	}
}

// sourceOf is invalid for the host itself.
func sourceOf(remote net.Addr) netip.Addr {
	t, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	a := t.AddrPort().Addr().Unmap().WithZone("")
	switch {
	case a.IsLoopback():
		return netip.Addr{}
	case a.Is6():
		return netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}

// NetConn is the connection itself, as in crypto/tls.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (l *listener) admit(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := len(l.open) >= l.most
	if full && !l.endsOldest {
		return false
	}
	if c.from.IsValid() {
		s := l.sources[c.from]
		if s == nil {
			l.forget()
			s = &source{rate: rate.NewLimiter(rate.Limit(l.most)/perSecond, l.most/atOnce)}
			l.sources[c.from] = s
		}
		if s.open >= l.most/share || !s.rate.Allow() {
			return false
		}
		s.open++
	}
	if full {
		oldest := l.open[0]
		l.remove(oldest)
		oldest.reset()
	}
	l.open = append(l.open, c)
	return true
}

// forget makes room for another source.
func (l *listener) forget() {
	if len(l.sources) < maxSources {
		return
	}
	for a, s := range l.sources {
		if s.open == 0 {
			delete(l.sources, a)
		}
	}
}

// remove makes room for another, once.
func (l *listener) remove(c *conn) {
	at := slices.Index(l.open, c)
	if at < 0 {
		return
	}
	l.open = slices.Delete(l.open, at, at+1)
	if c.from.IsValid() {
		l.sources[c.from].open--
	}
}

type conn struct {
	net.Conn
	of   *listener
	from netip.Addr
}

// Close makes room for another.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// reset closes what the kernel is to keep nothing of.
func (c *conn) reset() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Conn.Close()
}
