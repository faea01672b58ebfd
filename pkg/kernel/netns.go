// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	ownNamespace = "/proc/thread-self/ns/net"
	nsfsMagic    = 0x6e736673
)

// nsHandle is an open file that refers to a network namespace.
type nsHandle struct{ file *os.File }

func openNetns(path string) (nsHandle, error) {
	// Not blocking: the path may be a pipe's, which nobody writes to.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ESRCH) { // /proc/<pid>/ns/net of a process that just died
		err = fmt.Errorf("open %s: %w", path, os.ErrNotExist)
	}
	if err != nil {
		return nsHandle{}, fmt.Errorf("open network namespace: %w", err)
	}
	if err := checkNetns(file); err != nil {
		_ = file.Close()
		return nsHandle{}, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return nsHandle{file}, nil
}

func checkNetns(file *os.File) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &fs); err != nil {
		return err
	}
	if fs.Type != nsfsMagic && fs.Type != unix.PROC_SUPER_MAGIC {
		return errors.New("it is not a namespace: want a path like /run/netns/NAME or /proc/PID/ns/net")
	}
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return errors.New("it is not a network namespace: want a path like /run/netns/NAME or /proc/PID/ns/net")
	}
	return nil
}

func (n nsHandle) close() {
	if n.file != nil {
		_ = n.file.Close()
	}
}

// enter runs fn on a thread that is in the namespace. The thread goes back
// afterwards; one that cannot ends with its goroutine.
func (n nsHandle) enter(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		origin, err := os.Open(ownNamespace)
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		defer func() { _ = origin.Close() }()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			result <- os.NewSyscallError("setns", err)
			return
		}
		err = fn()
		if unix.Setns(int(origin.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// socket opens one in the namespace.
func (n nsHandle) socket() (s *socket, err error) {
	err = n.enter(func() (err error) {
		s, err = openSocket()
		return err
	})
	return s, err
}
