// SPDX-License-Identifier: Apache-2.0

package nfnl

import "testing"

// open opens the nftables of the current namespace.
func open(tb testing.TB) *Conn {
	tb.Helper()
	c, err := Open("calico")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}
