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

// Path is where the namespace is bind-mounted: what CNI_NETNS takes, and what
// nsenter --net= takes.
func (n Namespace) Path() string { return n.path }

// Do runs fn in the namespace, on a thread of its own. What fn starts in other
// goroutines runs outside; processes that it starts and sockets that it opens
// belong to the namespace for good.
func (n Namespace) Do(fn func() error) error {
	return onOwnThread(func() error { return n.Enter(fn) })
}

// Enter runs fn in the namespace on the calling thread, which must be locked,
// and doesn't go back.
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

// onOwnThread runs fn on a locked thread that goes back to its network
// namespace afterwards. A thread that cannot go back stays locked, so that the
// runtime never uses it for anything else.
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

// andBack runs fn on the calling thread and then returns the thread to the
// network namespace that it is in now; back is false where that failed.
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

// Remove takes the name away. The kernel destroys the namespace, and every
// link in it, with the last process in it. Gone already is no error.
func (n Namespace) Remove() error {
	for {
		// A second mount over the same file would be left by nothing here,
		// but costs nothing to undo.
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

// inode tells namespaces apart; 0 where there is none.
func (n Namespace) inode() uint64 {
	var st unix.Stat_t
	if unix.Stat(n.path, &st) != nil {
		return 0
	}
	return st.Ino
}

// NewNamespace makes a namespace for a container that is wired by hand, call
// by call. It goes with the lab, or by Remove.
func (l *Lab) NewNamespace(name string) (Namespace, error) {
	if err := checkName("namespace", name); err != nil {
		return Namespace{}, err
	}
	return createNamespace(l.named(name).path)
}

// FindNamespace returns the namespace of a pod, a host, or one made by hand;
// os.ErrNotExist where there is none.
func (l *Lab) FindNamespace(name string) (Namespace, error) {
	ns := l.named(name)
	if ns.inode() == 0 {
		return Namespace{}, &nameError{fmt.Sprintf("no namespace %s in lab %s", name, l.name), os.ErrNotExist}
	}
	return ns, nil
}

func (l *Lab) named(name string) Namespace { return namespaceIn(l.dir, name) }

// namespaceIn is the namespace of that name in a lab's directory.
func namespaceIn(dir, name string) Namespace { return Namespace{filepath.Join(dir, "ns", name)} }
