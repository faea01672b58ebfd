// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
)

// delegateTimeout bounds one run of another plugin: dhcp's daemon asks for about a
// minute, kubelet waits for four.
const delegateTimeout = 2 * time.Minute

// delegateExec runs other plugins as invoke.RawExec does. It gives them the
// open file with the interface's lock: should this process be killed, the next
// call for the interface waits until the other plugin has ended too, and finds
// what that has done.
//
// What it stops, it stops with all that has been started by it: a main plugin in
// the place of an IPAM plugin asks ipam.type for addresses, which is itself, and
// makes hundreds of processes a second.
type delegateExec struct {
	invoke.DefaultExec
	lock    *os.File // nil: none is held
	name    string   // ipam.type
	timeout time.Duration
}

// ExecPlugin runs a plugin and returns what it wrote to stdout. The error of a
// plugin that says no is the *types.Error that it wrote.
func (e *delegateExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, done := context.WithTimeoutCause(ctx, e.timeout, &stoppedError{why: fmt.Sprintf("it did not answer within %v", e.timeout)})
	defer done()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = append(environ, delegatedVar+"="+e.name), bytes.NewReader(stdin), &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	if e.lock != nil {
		c.ExtraFiles = []*os.File{e.lock}
	}
	err := c.Start()
	if err == nil {
		go stopLoop(ctx, c.Process.Pid, cancel)
		err = c.Wait()
	}
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, said(err, stdout.Bytes(), stderr.Bytes())
	}
	_, _ = stderr.WriteTo(os.Stderr) // for people
	return stdout.Bytes(), nil
}

// stoppedError says why a plugin was stopped.
type stoppedError struct {
	why  string
	loop bool
}

// Error is the reason.
func (e *stoppedError) Error() string { return e.why }

const (
	lookEvery = 100 * time.Millisecond
	// maxGenerations is more than any plugin needs that asks others, in scripts.
	maxGenerations = 16
)

// stopLoop ends a plugin that has become a chain of processes.
func stopLoop(ctx context.Context, pid int, stop context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
		if generations(pid, maxGenerations) == maxGenerations {
			stop(&stoppedError{why: "it asks itself, or another plugin that asks it, without an end", loop: true})
			return
		}
	}
}

// generations counts a process, its children, their children and so on, up to
// most. A kernel without CONFIG_PROC_CHILDREN shows none: then the timeout decides.
func generations(pid, most int) int {
	family := []string{strconv.Itoa(pid)}
	for n := 1; n < most; n++ {
		var children []string
		for _, p := range family {
			lists, _ := filepath.Glob("/proc/" + p + "/task/*/children")
			for _, list := range lists {
				data, _ := os.ReadFile(list) // gone meanwhile
				children = append(children, strings.Fields(string(data))...)
			}
		}
		if len(children) == 0 {
			return n
		}
		family = children
	}
	return most
}

func said(err error, stdout, stderr []byte) error {
	var e types.Error
	switch {
	case len(stdout) > 0:
		if bad := json.Unmarshal(stdout, &e); bad != nil {
			e.Msg = fmt.Sprintf("it failed, and its error %q does not parse: %v", stdout, bad)
		}
	case len(stderr) > 0:
		e.Msg = fmt.Sprintf("it failed: %v: %q", err, stderr)
	default:
		e.Msg = fmt.Sprintf("it failed without a message: %v", err)
	}
	return &e
}
