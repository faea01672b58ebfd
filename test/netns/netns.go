// SPDX-License-Identifier: Apache-2.0

// Package netns gives tests network namespaces that are gone when they end.
package netns

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// ofThread is the calling thread's namespace.
const ofThread = "/proc/thread-self/ns/net"

// Host runs fn on a thread in a fresh network namespace, which is the host's
// as far as the test is concerned. The thread ends afterwards, and the
// namespace with it.
func Host(tb testing.TB, fn func()) {
	tb.Helper()
	onThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			tb.Errorf("make a network namespace (tests need root, or a user namespace): %v", err)
			return
		}
		if err := bringUpLoopback(); err != nil {
			tb.Error(err)
			return
		}
		fn()
	})
}

// onThread runs fn on a thread of its own, which is never unlocked: it dies with its goroutine. The main thread
// wouldn't. It would stay in a namespace, which is the process's then for whoever looks into /proc, until the
// process ends.
func onThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(fn) // on another one, as this is locked
			runtime.UnlockOSThread()
			return
		}
		fn()
	}()
	<-done
}

func bringUpLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// New makes a network namespace.
func New(tb testing.TB) *os.File {
	tb.Helper()
	var file *os.File
	var err error
	onThread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			file, err = os.Open(ofThread)
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = file.Close() })
	return file
}

// Within runs fn on a thread in a namespace. The thread ends afterwards, whatever
// becomes of the test.
func Within(tb testing.TB, ns interface{ Fd() uintptr }, fn func()) {
	tb.Helper()
	onThread(func() {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			tb.Error(os.NewSyscallError("setns", err))
			return
		}
		fn()
	})
}

// OfThread is the name of the calling thread's namespace.
func OfThread(tb testing.TB) string {
	tb.Helper()
	name, err := os.Readlink(ofThread)
	if err != nil {
		tb.Fatal(err)
	}
	return name
}

// IP runs iproute2 in the current namespace and returns the lines it prints.
func IP(tb testing.TB, args ...string) []string {
	tb.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// SetSysctl sets one below net in the current namespace.
func SetSysctl(tb testing.TB, name, value string) {
	tb.Helper()
	if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// NoLeaks waits until no goroutine is left.
func NoLeaks(tb testing.TB) {
	tb.Helper()
	for deadline := time.Now().Add(eventually.Limit); ; {
		err := goleak.Find()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatal(err)
		}
	}
}
