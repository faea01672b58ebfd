// SPDX-License-Identifier: Apache-2.0

// Package ports finds addresses that servers of a lab can listen at.
package ports

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Free returns distinct addresses at which nothing listens, below the ports that the kernel gives to connections,
// which could take one before the test does.
func Free(tb testing.TB, n int) []string {
	tb.Helper()
	addrs := make([]string, 0, n)
	for len(addrs) < n {
		addr := "127.0.0.1:" + strconv.Itoa(10000+rand.IntN(22000))
		l, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		defer func() { _ = l.Close() }() // nobody has used it, and until all are found nobody may
		addrs = append(addrs, addr)
	}
	return addrs
}
