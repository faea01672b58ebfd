// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Pause stops every thread of the process, and returns when all of them have stopped. Sending SIGSTOP is not enough:
// each thread stops when it next leaves the kernel, and until it gets a CPU it continues its current work.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	err := p.await(ctx, "every thread of "+p.Role+" to stop", p.standsStill)
	if err != nil && p.Alive() {
		err = errors.Join(err, p.Resume())
	}
	return err
}

// Resume continues a paused process.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// standsStill returns an error while a thread is not stopped, that is, its state is not T (proc_pid_stat(5), field 3).
// A thread that was told to stop creates no more threads, so checking all of them once is enough.
func (p *Process) standsStill() error {
	tasks := filepath.Join("/proc", strconv.Itoa(p.PID), "task")
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(tasks, e.Name(), "stat"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return err
		}
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(fields) == 0 || string(fields[0]) != "T" {
			return fmt.Errorf("thread %s of %d is in state %.1s", e.Name(), len(entries), bytes.Join(fields, nil))
		}
	}
	return nil
}
