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

// Namespace is an open network namespace of a workload. It is good for one
// goroutine at a time.
type Namespace struct {
	path string
	netns
	sock *socket
	made madeVeth
}

// netns is an open file that refers to a network namespace.
type netns struct{ file *os.File }

// OpenNamespace opens the network namespace that the path refers to. The error
// wraps os.ErrNotExist when there is nothing at the path.
func OpenNamespace(path string) (*Namespace, error) {
	ns, err := openNetns(path)
	if err != nil {
		return nil, err
	}
	n := &Namespace{path: path, netns: ns}
	err = ns.enter(func() error {
		var err error
		n.sock, err = openSocket()
		return err
	})
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return n, nil
}

// Path is what the namespace was opened with.
func (n *Namespace) Path() string { return n.path }

// Close releases the namespace; it stays as long as something else holds it.
func (n *Namespace) Close() {
	if n.sock != nil {
		n.sock.close()
	}
	n.netns.close()
}

func openNetns(path string) (netns, error) {
	// Not blocking: the path may be a pipe's, which nobody writes to.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ESRCH) { // /proc/<pid>/ns/net of a process that just died
		err = fmt.Errorf("open %s: %w", path, os.ErrNotExist)
	}
	if err != nil {
		return netns{}, fmt.Errorf("open network namespace: %w", err)
	}
	if err := checkNetns(file); err != nil {
		_ = file.Close()
		return netns{}, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return netns{file}, nil
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

func (n netns) close() {
	if n.file != nil {
		_ = n.file.Close()
	}
}

// enter runs fn on a thread that is in the namespace. The thread goes back
// afterwards; one that cannot ends with its goroutine.
func (n netns) enter(fn func() error) error {
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
