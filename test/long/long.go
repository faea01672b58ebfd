// SPDX-License-Identifier: Apache-2.0

// Package long is for tests that the short form of all tests leaves out.
package long

import "testing"

// Test leaves out the rest of a test in the short form, which runs before every change: `make test FULL=1` and `make soak` run it.
func Test(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out of the short form: make test FULL=1")
	}
}
