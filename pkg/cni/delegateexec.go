// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
)

// delegateTimeout bounds one run of another plugin: dhcp's daemon asks for about a
// minute, kubelet waits for four.
const delegateTimeout = 2 * time.Minute

// outputGrace is how long what a plugin has left running may keep the plugin's output
// open. What the plugin itself wrote is there when it ends.
const outputGrace = time.Second

// delegateExec runs other plugins as invoke.RawExec does. It gives them the
// open file with the interface's lock: should this process be killed, the next
// call for the interface waits until the other plugin has ended too, and finds
// what that has done. A call that ends drops the lock for all who were given it.
//
// What it stops, it stops with all that has been started by it.
type delegateExec struct {
	invoke.DefaultExec
	lock    *os.File // nil: none is held
	name    string   // ipam.type
	timeout time.Duration
}

// ExecPlugin runs a plugin and returns what it wrote to stdout. The error of a
// plugin that says no is the *types.Error that it wrote.
func (e *delegateExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	ctx, done := context.WithTimeoutCause(ctx, e.timeout, &stoppedError{why: fmt.Sprintf("it did not answer within %v", e.timeout)})
	defer done()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = append(environ, delegatedVar+"="+e.name), bytes.NewReader(stdin), &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = outputGrace
	if e.lock != nil {
		c.ExtraFiles = []*os.File{e.lock}
	}
	err := c.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it succeeded, and left a process that has its output
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
type stoppedError struct{ why string }

// Error is the reason.
func (e *stoppedError) Error() string { return e.why }

// guardedPath is CNI_PATH for the plugin that ipam.type names, with calico under
// that name before all else. A main plugin in the place of an IPAM plugin asks
// ipam.type for addresses: itself, which made hundreds of processes a second
// without an end. So it asks calico, which says what is wrong.
func (s *session) guardedPath() string {
	var errs []error
	for _, base := range []string{s.env.runDir, s.env.varDir} {
		dir := filepath.Join(base, "ipam-type", s.conf.IPAM.Type)
		err := guard(filepath.Join(dir, s.conf.IPAM.Type))
		if err == nil {
			return dir + string(filepath.ListSeparator) + s.env.path
		}
		errs = append(errs, err)
	}
	s.log.Warn("going on without a guard against an ipam.type that asks itself", "error", errors.Join(errs...))
	return s.env.path
}

// guard makes the path lead to calico, wherever that is by now.
func guard(path string) error {
	calico, err := os.Executable()
	if err != nil {
		return err
	}
	if there, err := os.Readlink(path); err == nil && there == calico {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// Another call may be looking at it.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Symlink(calico, fresh); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Rename(fresh, path)
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
