// SPDX-License-Identifier: Apache-2.0

package store

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
)

type proxyMode int

const (
	forward proxyMode = iota
	refuse            // close what is open and what comes
	stall             // accept and keep what is open, and let nothing through
	deafen            // let requests through, and keep back the answers
)

// proxy stands before a server and breaks in the ways that networks do.
type proxy struct {
	addr, to string
	l        net.Listener

	mu    sync.Mutex
	mode  proxyMode
	moved chan struct{} // closed when the mode changes
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func startProxy(t testing.TB, to string) *proxy {
	t.Helper()
	return startProxyAt(t, "127.0.0.1:0", to)
}

func startProxyAt(t testing.TB, at, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), to: to, l: l, mode: refuse, moved: make(chan struct{}), conns: make(map[net.Conn]bool)}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.set(refuse)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) set(m proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.moved)
	p.moved = make(chan struct{})
	if m == refuse {
		for c := range p.conns {
			c.Close()
		}
	}
}

func (p *proxy) state() (proxyMode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.moved
}

// keep registers a connection; false where there are none to be.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == refuse {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		if !p.keep(c) {
			continue
		}
		p.wg.Go(func() {
			defer p.drop(c)
			s, err := net.Dial("tcp", p.to)
			if err != nil {
				return
			}
			if !p.keep(s) {
				return
			}
			defer p.drop(s)
			var both sync.WaitGroup
			both.Go(func() { p.copy(s, c, stall) })
			both.Go(func() { p.copy(c, s, stall, deafen) })
			both.Wait()
		})
	}
}

func (p *proxy) copy(to, from net.Conn, keptBack ...proxyMode) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for {
			mode, moved := p.state()
			if !slices.Contains(keptBack, mode) {
				break
			}
			<-moved
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil && err != io.EOF || n == 0 {
			return
		}
	}
}
