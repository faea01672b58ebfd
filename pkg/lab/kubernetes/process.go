// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// A process is a program that a test starts, kills and starts again. It appends to its log.
type process struct {
	tb   testing.TB
	name string
	argv []string
	env  []string // added to the test's own
	log  string
	// inner says that argv enters a process namespace, in which the program is a child.
	inner bool
	// attributes are used to start it; may be nil.
	attributes *syscall.SysProcAttr

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// start starts the process. It is killed at the end of the test.
func (p *process) start() {
	p.tb.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	first := p.cmd == nil
	p.cmd = exec.Command(p.argv[0], p.argv[1:]...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = p.attributes
	if err := p.cmd.Start(); err != nil {
		p.tb.Fatalf("start %s: %v", p.name, err)
	}
	done, cmd := make(chan struct{}), p.cmd
	p.done = done
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is in its log
	}()
	if first {
		p.tb.Cleanup(p.kill)
	}
}

// running returns the reason why the process doesn't run, nil if it does.
func (p *process) running() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, p.tail(20))
	default:
		return nil
	}
}

// pid returns the program's process ID.
func (p *process) pid() (int, error) {
	if !p.inner {
		return p.cmd.Process.Pid, nil
	}
	outer := strconv.Itoa(p.cmd.Process.Pid)
	text, err := os.ReadFile(filepath.Join("/proc", outer, "task", outer, "children"))
	if err != nil {
		return 0, err
	}
	child := strings.TrimSpace(string(text))
	if child == "" {
		return 0, os.ErrProcessDone
	}
	return strconv.Atoi(child)
}

// signal sends a signal, unless the process has ended.
func (p *process) signal(sig syscall.Signal) {
	p.tb.Helper()
	if p.running() != nil {
		return
	}
	pid, err := p.pid()
	if err == nil {
		err = syscall.Kill(pid, sig)
	}
	ended := errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrProcessDone)
	if err != nil && !ended {
		p.tb.Errorf("signal %s: %v", p.name, err)
	}
}

// stop asks the process to end, and waits.
func (p *process) stop() { p.end(syscall.SIGTERM) }

// kill kills the process, and waits.
func (p *process) kill() { p.end(syscall.SIGKILL) }

func (p *process) end(sig syscall.Signal) {
	p.tb.Helper()
	p.signal(sig)
	eventually.Receive(p.tb, fmt.Sprintf("%s to end, by %v", p.name, sig), p.done)
}

// tail returns the end of the log.
func (p *process) tail(lines int) string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
