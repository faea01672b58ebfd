// SPDX-License-Identifier: Apache-2.0

//go:build killpoints

// Package killpoint ends the process at a chosen step, in binaries built with the tag killpoints, so that tests see what is left.
package killpoint

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// reached counts how often each boundary was reached.
var reached struct {
	sync.Mutex
	times map[string]int
}

// Step marks a boundary between two steps of a call. The process kills itself at the boundary that CALICO_KILL_STEP names: "decided 2" is
// the second time that "decided" is reached. Every boundary is appended to the file that CALICO_STEP_LOG names, in the same form.
func Step(name string) {
	reached.Lock()
	defer reached.Unlock()
	if reached.times == nil {
		reached.times = make(map[string]int)
	}
	reached.times[name]++
	here := fmt.Sprintf("%s %d", name, reached.times[name])
	if file := os.Getenv("CALICO_STEP_LOG"); file != "" {
		if f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			_, _ = f.WriteString(here + "\n")
			_ = f.Close()
		}
	}
	if os.Getenv("CALICO_KILL_STEP") == here {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}
