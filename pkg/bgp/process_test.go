// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// A speaker is a Speaker in a process of its own.
type speaker struct {
	tb   testing.TB
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  *syncBuffer
}

// syncBuffer holds what a process logs, and can be read meanwhile.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start starts a speaker's process in the host's namespace.
func (h *host) start(tb testing.TB) *speaker { return h.startLogging(tb, "info") }

func (h *host) startLogging(tb testing.TB, level string) *speaker {
	tb.Helper()
	s := &speaker{tb: tb, name: h.name, cmd: exec.Command(os.Args[0]), log: new(syncBuffer)}
	s.cmd.Env = append(os.Environ(), speakerEnv+"="+level)
	s.cmd.Stderr = s.log
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	s.in, s.out = stdin, json.NewDecoder(stdout)
	in(tb, h.ns, s.cmd.Start)
	tb.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.end()
		}
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", s.name, s.log)
		}
	})
	return s
}

// bound lets the process log its stacks and end, unless met is called in time.
func (s *speaker) bound() (met func() bool) {
	return time.AfterFunc(eventually.Limit, func() { _ = s.cmd.Process.Signal(syscall.SIGQUIT) }).Stop
}

// end lets the process end, as it does without more orders.
func (s *speaker) end() {
	s.tb.Helper()
	defer s.bound()()
	_ = s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		s.tb.Errorf("%s: %v", s.name, err)
	}
}

// ask gives an order and returns the answer.
func (s *speaker) ask(o order) answer {
	s.tb.Helper()
	defer s.bound()()
	var a answer
	data, err := json.Marshal(o)
	if err != nil {
		s.tb.Fatal(err)
	}
	if _, err := s.in.Write(append(data, '\n')); err != nil {
		s.tb.Fatalf("%s: %v\n%s", s.name, err, s.log)
	}
	if err := s.out.Decode(&a); err != nil {
		s.tb.Fatalf("%s: %v\n%s", s.name, err, s.log)
	}
	return a
}

// apply applies the desired state.
func (s *speaker) apply(d Desired) time.Time {
	s.tb.Helper()
	a := s.ask(order{Do: "apply", Desired: d})
	if a.Err != "" {
		s.tb.Fatalf("%s: %s", s.name, a.Err)
	}
	return a.At
}

// applied retries apply until a port that was just closed here is free: a process that is started at that moment holds the
// port until it runs its program.
func (s *speaker) applied(d Desired) {
	s.tb.Helper()
	becomes(s.tb, s.name+" says", "", func() string { return s.ask(order{Do: "apply", Desired: d}).Err })
}

func (s *speaker) look() answer { s.tb.Helper(); return s.ask(order{Do: "look"}) }

// close ends the speaker, as when an agent restarts, and its process.
func (s *speaker) close() {
	s.tb.Helper()
	if a := s.ask(order{Do: "close"}); a.Err != "" {
		s.tb.Errorf("%s: %s", s.name, a.Err)
	}
	s.end()
}

// kill ends the process as the kernel does when memory is short.
func (s *speaker) kill() {
	s.tb.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.tb.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed, which is an error
}
