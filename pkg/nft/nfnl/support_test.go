// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inHost runs fn on a thread in a fresh network namespace, which goes with it.
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
		fn()
	}()
	<-done
}

// nft runs the nft tool in the current namespace.
func nft(tb testing.TB, command string) {
	tb.Helper()
	if out, err := exec.Command("nft", strings.Fields(command)...).CombinedOutput(); err != nil {
		tb.Fatalf("nft %s: %v\n%s", command, err, out)
	}
}

// open opens the nftables of the current namespace.
func open(tb testing.TB) *Conn {
	tb.Helper()
	c, err := Open("calico")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
