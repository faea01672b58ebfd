// SPDX-License-Identifier: Apache-2.0

// Command isolate runs a command where it can do no harm to the machine: in new network, mount and process namespaces
// (and a new user namespace where the caller isn't root), with only a loopback interface, an empty /run, and a first
// process that reaps orphans and takes everything that was started with it when the command ends.
//
//	go run ./scripts/isolate go test ./...
//
// It needs nothing but Go and Linux: no unshare, no ip.
package main

import (
	"errors"
	"fmt"
	"os"
)

// stageEnv is set for the process that isolate starts inside the new namespaces.
const stageEnv = "CALICO_ISOLATE_STAGE"

// markEnv is set for the isolated command, so that tests that must not run on the bare machine can insist on it.
const markEnv = "CALICO_ISOLATED"

const usage = "usage: isolate command [argument...]"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	run := outside
	if os.Getenv(stageEnv) != "" {
		run = inside
	}
	err := run(os.Args[1:])
	if status := (*statusError)(nil); errors.As(err, &status) {
		os.Exit(status.code)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolate:", err)
		os.Exit(1)
	}
}

// A statusError is the exit status of a command that ended on its own; it isn't isolate's to report.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("exit status %d", e.code) }
