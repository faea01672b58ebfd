// SPDX-License-Identifier: Apache-2.0

// Package ports finds addresses for servers of a lab to listen on.
package ports

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Free returns distinct addresses on which nothing listens. Their ports are below those that the kernel assigns to
// connections, so that no connection takes one before the test does.
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
		defer func() { _ = l.Close() }() // unused so far, and reserved until all are found
		addrs = append(addrs, addr)
	}
	return addrs
}
