// SPDX-License-Identifier: Apache-2.0

// Package zmqpeer drives sockets of libzmq, the implementation of ZeroMQ that nobody here wrote, by its binding for Python.
package zmqpeer

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

//go:embed peer.py
var program string

// Process is a process that has sockets.
type Process struct {
	t  testing.TB
	in io.WriteCloser

	asking  sync.Mutex // who has it asks, and is answered
	enc     *json.Encoder
	answers chan said
	cmd     *exec.Cmd
	killed  atomic.Bool

	mu      sync.Mutex
	sockets map[string]*Socket
}

// Socket is one of them. What it received is to be had by Receive.
type Socket struct {
	// At is the address that it is bound to, or connects to.
	At       string
	name     string
	of       *Process
	received chan []string
}

type said struct {
	Socket, At, Error string
	Parts             []string
}

// Start starts a process, which ends with the test.
func Start(t testing.TB) *Process {
	t.Helper()
	p := &Process{t: t, answers: make(chan said), sockets: map[string]*Socket{}, cmd: exec.Command("/usr/bin/python3", "-c", program)}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = os.Stderr
	p.in, p.enc = in, json.NewEncoder(in)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			var s said
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				continue
			}
			if s.Parts == nil {
				p.answers <- s
				continue
			}
			p.mu.Lock()
			to := p.sockets[s.Socket]
			p.mu.Unlock()
			if to != nil {
				to.received <- s.Parts
			}
		}
		close(p.answers)
	}()
	t.Cleanup(func() { p.Kill(); <-read })
	return p
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

func (p *Process) do(command map[string]any) said {
	p.t.Helper()
	p.asking.Lock()
	defer p.asking.Unlock()
	var s said
	err := p.enc.Encode(command)
	if err == nil {
		s = eventually.Receive(p.t, fmt.Sprintf("libzmq's answer to %v", command), p.answers)
	}
	if p.killed.Load() { // what others still ask of it doesn't matter
		return s
	}
	if err != nil {
		p.t.Fatalf("the libzmq peer: %v (it needs the package python3-zmq)", err)
	}
	if s.Error != "" || s.Socket == "" {
		p.t.Fatalf("the libzmq peer: %v: %s (it needs the package python3-zmq)", command, s.Error)
	}
	return s
}

// Bind makes a socket of a type, such as ROUTER, and binds it to host:port; port * is any. Options are those of libzmq, by their
// names.
func (p *Process) Bind(kind, at string, options map[string]int) *Socket {
	p.t.Helper()
	return p.open(kind, "bind", at, options)
}

// Connect makes a socket of a type, and connects it.
func (p *Process) Connect(kind, to string, options map[string]int) *Socket {
	p.t.Helper()
	return p.open(kind, "connect", to, options)
}

func (p *Process) open(kind, how, at string, options map[string]int) *Socket {
	p.t.Helper()
	p.mu.Lock()
	s := &Socket{name: fmt.Sprint(kind, len(p.sockets)), of: p, received: make(chan []string, 1<<16)}
	p.sockets[s.name] = s
	p.mu.Unlock()
	command := map[string]any{"do": "open", "socket": s.name, "type": kind, how: at}
	if options != nil {
		command["options"] = options
	}
	s.At = p.do(command).At
	return s
}

// Send sends a message.
func (s *Socket) Send(parts ...string) {
	s.of.t.Helper()
	s.of.do(map[string]any{"do": "send", "socket": s.name, "parts": parts})
}

// Echo has the socket answer each request that contains the text by itself.
func (s *Socket) Echo(text string) {
	s.of.t.Helper()
	s.of.do(map[string]any{"do": "echo", "socket": s.name, "text": text})
}

// Beat has the socket publish a message again and again, until it is closed.
func (s *Socket) Beat(parts ...string) {
	s.of.t.Helper()
	s.of.do(map[string]any{"do": "beat", "socket": s.name, "parts": parts})
}

// Subscribe subscribes a SUB socket to a topic.
func (s *Socket) Subscribe(topic string) {
	s.of.t.Helper()
	s.of.do(map[string]any{"do": "subscribe", "socket": s.name, "topic": topic})
}

// Unsubscribe ends that.
func (s *Socket) Unsubscribe(topic string) {
	s.of.t.Helper()
	s.of.do(map[string]any{"do": "unsubscribe", "socket": s.name, "topic": topic})
}

// Pause has the socket read nothing any more.
func (s *Socket) Pause() {
	s.of.t.Helper()
	s.of.do(map[string]any{"do": "pause", "socket": s.name})
}

// Close closes the socket, whose address is free then.
func (s *Socket) Close() {
	s.of.t.Helper()
	s.of.do(map[string]any{"do": "close", "socket": s.name})
}

// Received are the messages, in order.
func (s *Socket) Received() <-chan []string { return s.received }

// Receive returns the next message.
func (s *Socket) Receive() []string {
	s.of.t.Helper()
	return eventually.Receive(s.of.t, "a message at "+s.At, s.received)
}
