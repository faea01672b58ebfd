// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// pipes is a listener in memory.
type pipes struct{ made chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.made; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p.made); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection of a source.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// dial connects as the address.
func (p pipes) dial(addr string) net.Conn {
	a, b := net.Pipe()
	var remote net.Addr = &net.UnixAddr{}
	if ip, err := netip.ParseAddr(addr); err == nil {
		remote = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 1))
	}
	p.made <- from{b, remote}
	return a
}

func closed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Microsecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// TestLimit: a stranger has its share of connections, all have no more than there are, and those that end make room.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn)}
		l := Limit(p, Connections)
		accepted := make(chan net.Conn, 1000)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
		try := func(source string, n, want int) {
			t.Helper()
			open := 0
			for range n {
				c := p.dial(source)
				synctest.Wait()
				if !closed(c) {
					open++
				}
			}
			if open != want {
				t.Errorf("%s: %d of %d connections stay, want %d", source, open, n, want)
			}
		}
		try("192.0.2.1", 100, Connections/share)
		try("2001:db8::1", Connections/share, Connections/share)
		try("2001:db8::2", 3, 0) // of the same /64
		try("127.0.0.1", 10, 10)
		try("::ffff:127.0.0.1", 10, 10)
		try("", 100, Connections-2*Connections/share-20)
		for len(accepted) > 0 {
			c := <-accepted
			_ = c.Close()
			_ = c.Close() // counts once
		}
		// Who came too often waits, and nobody else.
		for range 100 {
			_ = p.dial("192.0.2.2").Close()
			synctest.Wait()
			for len(accepted) > 0 {
				_ = (<-accepted).Close()
			}
		}
		try("192.0.2.2", 1, 0)
		try("192.0.2.3", 1, 1)
		time.Sleep(time.Second)
		try("192.0.2.2", Connections/share, Connections/share)
		_ = p.Close()
	})
}

// TestOldestEnds: who has all connections of a server that answers at once keeps nobody out, whatever it sends.
func TestOldestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn)}
		l := LimitOldest(p, Connections)
		go func() {
			for {
				if _, err := l.Accept(); err != nil {
					return
				}
			}
		}()
		var all []net.Conn
		for range Connections {
			all = append(all, p.dial("127.0.0.1"))
		}
		for i, source := range []string{"127.0.0.1", "192.0.2.1", ""} {
			all = append(all, p.dial(source))
			synctest.Wait()
			for at, c := range all {
				if closed(c) != (at <= i) {
					t.Errorf("after %d more, connection %d: closed %v", i+1, at, at > i)
				}
			}
		}
		for range 2 * Connections { // a stranger has its share of them all the same
			_ = p.dial("192.0.2.1")
		}
		synctest.Wait()
		open := 0
		for _, c := range all {
			if !closed(c) {
				open++
			}
		}
		if open != Connections-(Connections/share-1) {
			t.Errorf("%d of the first connections are left", open)
		}
		_ = p.Close()
	})
}

// TestSourcesAreForgotten: any number of sources takes no more memory.
func TestSourcesAreForgotten(t *testing.T) {
	l := Limit(nil, Connections).(*listener)
	a := netip.MustParseAddr("10.0.0.0")
	for range 10 * maxSources {
		a = a.Next()
		c := &conn{of: l, from: a}
		if !l.admit(c) {
			t.Fatal("refused", a)
		}
		l.remove(c)
	}
	held := &source{open: 1, rate: rate.NewLimiter(1, 1)}
	l.sources[a] = held
	for range maxSources {
		l.forget()
		l.sources[a.Next()] = &source{rate: rate.NewLimiter(1, 1)}
		a = a.Next()
	}
	if len(l.sources) > maxSources || len(l.open) != 0 {
		t.Errorf("%d sources, %d open", len(l.sources), len(l.open))
	}
}

// TestTimeouts: who sends slowly, reads nothing or is idle is left after half a minute.
func TestTimeouts(t *testing.T) {
	const head = "GET / HTTP/1.1\r\nHost: h\r\n"
	for _, test := range []struct {
		name, first, next string // next is sent each second
		reads             bool
		within            time.Duration
	}{
		{"says nothing", "", "", true, headTimeout},
		{"a head without end", head, "A: b\r\n", true, headTimeout},
		{"a body without end", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", "x", true, Timeout},
		{"reads nothing", head + "\r\n", "", false, Timeout},
		{"is idle", head + "\r\n", "", true, Timeout},
		{"a head too large", head + "A: " + strings.Repeat("x", 2*maxHeader), "", true, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipes{make(chan net.Conn)}
				s := HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
				}))
				gone := make(chan struct{})
				s.ConnState = func(_ net.Conn, state http.ConnState) {
					if state == http.StateClosed {
						close(gone)
					}
				}
				go func() { _ = s.Serve(Limit(p, Connections)) }()
				defer func() { _ = s.Close() }()
				start := time.Now()
				c := p.dial("192.0.2.1")
				var sends sync.WaitGroup
				defer sends.Wait()
				defer func() { _ = c.Close() }()
				if test.reads {
					go func() { _, _ = io.Copy(io.Discard, c) }()
				}
				sends.Go(func() {
					_, err := io.WriteString(c, test.first)
					for test.next != "" && err == nil {
						time.Sleep(time.Second)
						_, err = io.WriteString(c, test.next)
					}
				})
				<-gone
				// Go waits half a second before it closes what it has not read.
				if took := time.Since(start); took > test.within+2*time.Second {
					t.Errorf("left after %s, want %s", took, test.within)
				}
			})
		})
	}
}
