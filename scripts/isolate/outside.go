// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// statusNoProc is how the inner process says that a new /proc is refused to it.
const statusNoProc = 125

// outside starts this program again inside new namespaces and waits for it. Inside a container /proc is often partly
// masked, and then the kernel lets no user namespace mount a new one; a process namespace without its own /proc would
// show wrong process ids, so it is left out there.
func outside(args []string) error {
	flags := uintptr(syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID)
	err := start(args, flags, "pid")
	if status := (*statusError)(nil); errors.As(err, &status) && status.code == statusNoProc {
		return start(args, flags&^syscall.CLONE_NEWPID, "nopid")
	}
	return err
}

// start runs the inner stage with the given clone flags.
func start(args []string, flags uintptr, stage string) error {
	// The death signal follows the thread that started the process, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stageEnv+"="+stage)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w (root is needed, or user namespaces: see sysctl user.max_user_namespaces)", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			// An interrupt from the terminal has reached the whole process group already.
			if s == syscall.SIGTERM {
				if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
					return fmt.Errorf("pass on %v: %w", s, err)
				}
			}
		case err := <-done:
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return &statusError{code: code(exit.Sys().(syscall.WaitStatus))}
			}
			return err
		}
	}
}

// code is the shell's convention for a process that ended by itself or by a signal.
func code(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
