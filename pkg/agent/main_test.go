// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

const (
	// nestedVariable marks the process that runs the tests, in a network
	// namespace of its own.
	nestedVariable = "AGENT_TEST_NESTED"
	// agentVariable marks a process that is an agent and nothing else.
	agentVariable = "AGENT_TEST_AGENT"
)

// TestMain runs all tests in a network namespace of their own.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(agentVariable) != "":
		os.Exit(runAgent())
	case os.Getenv(nestedVariable) != "":
		for _, args := range [][]string{
			{"link", "set", "lo", "up"},
			{"addr", "replace", "192.0.2.100/32", "dev", "lo"}, // the host's own
		} {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "ip %v: %v: %s\n", args, err, out)
				os.Exit(1)
			}
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the child dies with the thread that made it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), nestedVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintf(os.Stderr, "run the tests in a network namespace of their own (it takes root): %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runAgent does what cmd/calico-node does.
func runAgent() int {
	return Daemon(new(Config), "").Main("", nil, os.Environ())
}
