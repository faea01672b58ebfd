// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that has a name in the file system.
type Namespace struct{ path string }

// Path returns the path at which the namespace is mounted, for CNI_NETNS and for nsenter --net=.
func (n Namespace) Path() string { return n.path }

// Do runs fn in the namespace, on a separate thread. Goroutines that fn starts run outside; processes that it starts
// and sockets that it opens belong to the namespace permanently.
func (n Namespace) Do(fn func() error) error {
	return onOwnThread(func() error { return n.Enter(fn) })
}

// Enter runs fn in the namespace on the calling thread, which must be locked, and doesn't return the thread to its
// former namespace.
func (n Namespace) Enter(fn func() error) error {
	target, err := unix.Open(n.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", n.path, err)
	}
	defer unix.Close(target)
	if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", n.path, err)
	}
	return fn()
}

// onOwnThread runs fn on a locked thread that returns to its network namespace afterwards. A thread that cannot return
// stays locked, so that the runtime never reuses it.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := andBack(fn)
		if back {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// andBack runs fn on the calling thread and then returns the thread to its current network namespace; back is false if
// that failed.
func andBack(fn func() error) (back bool, err error) {
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, fmt.Errorf("open own namespace: %w", err)
	}
	defer unix.Close(home)
	err = fn()
	if e := unix.Setns(home, unix.CLONE_NEWNET); e != nil {
		return false, errors.Join(err, fmt.Errorf("leave namespace: %w", e))
	}
	return true, err
}

// createNamespace makes a network namespace with its loopback up, mounted at path.
func createNamespace(path string) (Namespace, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return Namespace{}, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		if errors.Is(err, os.ErrExist) {
			return Namespace{}, &nameError{fmt.Sprintf("the name %s is taken in this lab: choose another", filepath.Base(path)), os.ErrExist}
		}
		return Namespace{}, err
	}
	file.Close()
	err = onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace (root is needed, or a user namespace: unshare -Urnm): %w", err)
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find loopback: %w", err)
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("set loopback up: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount namespace at %s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		os.Remove(path)
		return Namespace{}, err
	}
	return Namespace{path}, nil
}

// Remove removes the name. The kernel destroys the namespace, and every link in it, along with the last process in it.
// It is no error if it is gone already.
func (n Namespace) Remove() error {
	for {
		// Nothing here mounts twice over the same file, but undoing it costs nothing.
		err := unix.Unmount(n.path, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return fmt.Errorf("unmount namespace %s: %w", n.path, err)
		}
	}
	if err := os.Remove(n.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// inode identifies the namespace; 0 if there is none.
func (n Namespace) inode() uint64 {
	var st unix.Stat_t
	if unix.Stat(n.path, &st) != nil {
		return 0
	}
	return st.Ino
}

// NewNamespace makes a namespace for a container that is wired by hand, call by call. It is removed with the lab, or by
// Remove.
func (l *Lab) NewNamespace(name string) (Namespace, error) {
	if err := checkName("namespace", name); err != nil {
		return Namespace{}, err
	}
	return createNamespace(l.named(name).path)
}

// FindNamespace returns the namespace of a pod, a host, or one made by hand; the error is os.ErrNotExist if there is
// none.
func (l *Lab) FindNamespace(name string) (Namespace, error) {
	ns := l.named(name)
	if ns.inode() == 0 {
		return Namespace{}, &nameError{fmt.Sprintf("no namespace %s in lab %s", name, l.name), os.ErrNotExist}
	}
	return ns, nil
}

func (l *Lab) named(name string) Namespace { return namespaceIn(l.dir, name) }

// namespaceIn returns the namespace with the name in a lab's directory.
func namespaceIn(dir, name string) Namespace { return Namespace{filepath.Join(dir, "ns", name)} }
