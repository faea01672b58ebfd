// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inHost runs fn on a thread in a fresh network namespace, which is the host's
// as far as the package is concerned. The thread ends afterwards, and the
// namespace with it.
func inHost(tb testing.TB, fn func()) {
	tb.Helper()
	done := make(chan struct{})
	go func() { // the thread is never unlocked: it dies with the goroutine
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			tb.Errorf("make a network namespace (tests need root, or a user namespace): %v", err)
			return
		}
		if err := bringUpLoopback(); err != nil {
			tb.Error(err)
			return
		}
		fn()
	}()
	<-done
}

func bringUpLoopback() error {
	s, err := openSocket()
	if err != nil {
		return err
	}
	defer s.close()
	_, err = s.ask(setUp(1))
	return err
}

// newPod makes a network namespace and returns the path by which it is open.
func newPod(tb testing.TB) *Namespace {
	tb.Helper()
	var file *os.File
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			file, err = os.Open(ownNamespace)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
	ns, err := OpenNamespace(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	_ = file.Close()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(ns.Close)
	return ns
}

func fdOf(ns *Namespace) string { return strconv.Itoa(int(ns.file.Fd())) }

// namespaceOfThread reports the namespace of the calling thread.
func namespaceOfThread(tb testing.TB) string {
	tb.Helper()
	name, err := os.Readlink(ownNamespace)
	if err != nil {
		tb.Fatal(err)
	}
	return name
}

func TestOpenNamespaceErrors(t *testing.T) {
	for _, gone := range []string{"/run/netns/no-such-namespace", "/proc/2147483647/ns/net"} {
		if _, err := OpenNamespace(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("OpenNamespace(%q): %v", gone, err)
		}
	}
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, pipe, t.TempDir(), "/proc/self/ns/mnt", "/dev/null"} {
		if ns, err := OpenNamespace(path); err == nil {
			ns.Close()
			t.Errorf("OpenNamespace(%q) succeeded", path)
		} else if !strings.Contains(err.Error(), "namespace") || !strings.Contains(err.Error(), path) {
			t.Errorf("OpenNamespace(%q): %v", path, err)
		}
	}
}
