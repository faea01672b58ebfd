// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	OwnNetns  = "/proc/thread-self/ns/net"
	nsfsMagic = 0x6e736673
)

// Netns is an open file that refers to a network namespace.
type Netns struct{ File *os.File }

// OpenNetns opens the network namespace that the path refers to.
func OpenNetns(path string) (Netns, error) {
	// Not blocking: the path may be a pipe's, which nobody writes to.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ESRCH) { // /proc/<pid>/ns/net of a process that just died
		err = fmt.Errorf("open %s: %w", path, os.ErrNotExist)
	}
	if err != nil {
		return Netns{}, fmt.Errorf("open network namespace: %w", err)
	}
	if err := checkNetns(file); err != nil {
		_ = file.Close()
		return Netns{}, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return Netns{file}, nil
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

// Close lets go of the namespace.
func (n Netns) Close() {
	if n.File != nil {
		_ = n.File.Close()
	}
}

// Enter runs fn on a thread that is in the namespace. The thread goes back
// afterwards; one that cannot ends with its goroutine. Where another goroutine has
// closed the namespace by then, the error wraps os.ErrClosed.
func (n Netns) Enter(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		origin, err := os.Open(OwnNetns)
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		defer func() { _ = origin.Close() }()
		if err := n.set(); err != nil {
			runtime.UnlockOSThread()
			result <- err
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

// set has the calling thread be in the namespace, whose file isn't closed meanwhile.
func (n Netns) set() error {
	raw, err := n.File.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	if raw.Control(func(fd uintptr) { refused = unix.Setns(int(fd), unix.CLONE_NEWNET) }) != nil {
		return fmt.Errorf("enter a network namespace: %w", os.ErrClosed) // which is all that it can be
	}
	return os.NewSyscallError("setns", refused)
}

// Open opens one in the namespace.
func (n Netns) Open() (s *Socket, err error) {
	err = n.Enter(func() (err error) {
		s, err = Open()
		return err
	})
	return s, err
}
