// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
)

// delegateExec runs other plugins as invoke.RawExec does. It gives them the
// open file with the interface's lock: should this process be killed, the next
// call for the interface waits until the other plugin has ended too, and finds
// what that has done.
type delegateExec struct {
	invoke.DefaultExec
	lock *os.File // nil: none is held
}

// ExecPlugin runs a plugin and returns what it wrote to stdout. The error of a
// plugin that says no is the *types.Error that it wrote.
func (e *delegateExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	if e.lock != nil {
		c.ExtraFiles = []*os.File{e.lock}
	}
	if err := c.Run(); err != nil {
		return nil, said(err, stdout.Bytes(), stderr.Bytes())
	}
	_, _ = stderr.WriteTo(os.Stderr) // for people
	return stdout.Bytes(), nil
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
