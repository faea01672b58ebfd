// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzTracked: whatever the connection tracker says, nothing panics.
func FuzzTracked(f *testing.F) {
	for _, code := range []byte{0, 200} { // a tracked query of ICMPv6
		proto := []byte{5, 0, 1, 0, 58, 0, 0, 0, 5, 0, 8, 0, 128, 0, 0, 0, 5, 0, 9, 0, code, 0, 0, 0}
		tuple := append([]byte{byte(4 + len(proto)), 0, 2, 0x80}, proto...)
		f.Add(append([]byte{unix.AF_INET6, 0, 0, 0, byte(4 + len(tuple)), 0, 1, 0x80}, tuple...))
	}
	f.Fuzz(func(_ *testing.T, b []byte) { parseTracked(b) })
}
