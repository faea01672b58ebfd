// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// run runs a command in a namespace and returns its stdout. If the command fails, the error ends with what it wrote to
// stderr.
func run(ctx context.Context, ns Namespace, env []string, command string, args ...string) ([]byte, error) {
	path, err := exec.LookPath(command)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	if err := ns.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	if err := cmd.Wait(); err != nil {
		text := strings.TrimSpace(stderr.String())
		return stdout.Bytes(), fmt.Errorf("%s %s: %w: %s", command, strings.Join(args, " "), err, text)
	}
	return stdout.Bytes(), nil
}

// startNamed starts a command that runs until it is stopped or the lab is closed.
func (ps *processes) startNamed(role string, ns Namespace, env []string, command string, args []string) (*Process, error) {
	if err := checkName("process", role); err != nil {
		return nil, err
	}
	path, err := exec.LookPath(command)
	if err != nil {
		return nil, err
	}
	return ps.start(spec{role: role, ns: ns, path: path, args: args, env: env, dir: "/"})
}
