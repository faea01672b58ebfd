// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

// inside finishes the namespaces that outside made, runs the command in them and returns its status.
func inside(args []string) error {
	if err := mounts(os.Getenv(stageEnv) == "pid"); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	// The first process of a namespace gets no signal that it hasn't asked for. The command is told to stop; when it
	// does, so does this process, and the kernel kills the rest.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	child, err := os.StartProcess(path, args, &os.ProcAttr{
		Env:   environment(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		for s := range signals {
			if s == unix.SIGTERM {
				// It may have ended a moment ago; reap sees that.
				_ = child.Signal(s)
			}
		}
	}()
	return reap(child.Pid)
}

// environment is the command's: isolate's own variables aside, and marked.
func environment() []string {
	env := []string{markEnv + "=1"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, stageEnv+"=") {
			env = append(env, kv)
		}
	}
	return env
}

// reap waits for every process that ends here, orphans included, until the one asked for has.
func reap(pid int) error {
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", pid, err)
		case got == pid && ws.Signaled():
			return &statusError{code: 128 + int(ws.Signal())}
		case got == pid && ws.ExitStatus() != 0:
			return &statusError{code: ws.ExitStatus()}
		case got == pid:
			return nil
		}
	}
}

// mounts cuts the mount namespace off from the machine's, and gives it a /run and, for a process namespace, a /proc of
// its own.
func mounts(proc bool) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if proc {
		err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		if errors.Is(err, unix.EPERM) {
			return &statusError{code: statusNoProc}
		}
		if err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount an empty /run: %w", err)
	}
	return os.Mkdir("/run/lock", 0o755)
}

// loopbackUp does what `ip link set lo up` does.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
