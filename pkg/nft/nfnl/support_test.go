// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"os/exec"
	"strings"
	"testing"
)

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
