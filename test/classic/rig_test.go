// SPDX-License-Identifier: Apache-2.0

// Package classic holds the roles of the APIs of 2014 to their document: each alone against sockets of libzmq, and together.
package classic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/zmqpeer"
)

// message is one of the APIs.
type message map[string]any

func (m message) String() string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// with is the message with other fields; a value of absent takes the field away.
func (m message) with(fields message) message {
	out := message{}
	for k, v := range m {
		out[k] = v
	}
	for k, v := range fields {
		if out[k] = v; v == absent {
			delete(out, k)
		}
	}
	return out
}

type nothing struct{}

var absent any = nothing{}

func read(t testing.TB, text string) message {
	t.Helper()
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%q is no message: %v", text, err)
	}
	return m
}

// roleRig is a host on which one role runs, and peers of libzmq.
type roleRig struct {
	*testing.T
	lab   *lab.Lab
	host  *lab.Host
	peers *zmqpeer.Process
	name  string
	args  []string
	role  *lab.Process
}

func newRoleRig(t *testing.T, role string, args ...string) *roleRig {
	t.Helper()
	l := lab.ForTest(t, lab.Config{Hosts: []string{"a"}, NoAgent: true, NoFsync: true})
	r := &roleRig{T: t, lab: l, host: l.Host("a"), name: role, args: append([]string{role}, args...)}
	r.peers = r.process()
	return r
}

// process starts another process with sockets on the host.
func (r *roleRig) process() (p *zmqpeer.Process) {
	r.Helper()
	if err := r.host.Do(func() error { p = zmqpeer.Start(r); return nil }); err != nil {
		r.Fatal(err)
	}
	return p
}

// beside runs what ends with the test's context.
func (r *roleRig) beside(do func()) {
	var running sync.WaitGroup
	running.Go(do)
	r.Cleanup(running.Wait) // before the peers end
}

// start starts the role.
func (r *roleRig) start() {
	r.Helper()
	p, err := r.host.Start("classic-"+r.name, filepath.Join(lab.Build(r, lab.BuildOptions{}), "calico-classic"), r.args...)
	if err != nil {
		r.Fatal(err)
	}
	r.role = p
}

// kill ends the role as kill -9 does.
func (r *roleRig) kill() {
	r.Helper()
	if err := r.role.Kill(); err != nil {
		r.Fatal(err)
	}
}

// page is one of the role's pages.
func (r *roleRig) page(port int, path string) (text string) {
	r.Helper()
	var conn net.Conn
	err := r.host.Do(func() (err error) {
		conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	})
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://host"+path, nil)
	if err == nil {
		err = request.Write(conn)
	}
	if err != nil {
		return err.Error()
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(answer.StatusCode, " ", string(b))
}

// says waits for a page to say something.
func (r *roleRig) says(port int, path, want string) {
	r.Helper()
	eventually.Nil(r, path+" says "+want, func() error {
		if got := r.page(port, path); !strings.Contains(got, want) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

// server is a ROUTER of libzmq.
type server struct {
	*zmqpeer.Socket
	t testing.TB
}

// next returns the next request, and what answers it. Signs of life are answered, where the socket doesn't by itself yet.
func (s server) next() (m message, answer func(message)) {
	s.t.Helper()
	for {
		parts := s.Receive()
		if len(parts) != 3 || parts[1] != "" {
			s.t.Fatalf("a request of %q", parts)
		}
		answer = func(m message) { s.Send(parts[0], "", m.String()) }
		if m = read(s.t, parts[2]); m["type"] != "HEARTBEAT" {
			return m, answer
		}
		answer(m)
	}
}

const (
	heartbeat    = `{"type":"HEARTBEAT"}`
	anyHeartbeat = `"HEARTBEAT"`
)

// client is a REQ of libzmq.
type client struct {
	*zmqpeer.Socket
	t testing.TB
}

func (c client) ask(text string) message {
	c.t.Helper()
	c.Send(text)
	parts := c.Receive()
	if len(parts) != 1 {
		c.t.Fatalf("a reply of %q", parts)
	}
	return read(c.t, parts[0])
}

// vm makes a machine behind an interface of the host.
func (r *roleRig) vm(iface, mac string, addrs ...string) lab.Namespace {
	r.Helper()
	ns, err := r.host.AddMachine(r.Context(), iface, mac, addrs...)
	if err != nil {
		r.Fatal(err)
	}
	return ns
}
