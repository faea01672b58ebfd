// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"os"
	"testing"
)

// TestProcessStays: the process's own namespace, which is the main thread's, is none of a test's.
func TestProcessStays(t *testing.T) {
	ofProcess := func() string {
		name, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	before := ofProcess()
	for range 100 {
		ns := New(t)
		Within(t, ns, func() {})
		Host(t, func() {})
	}
	if after := ofProcess(); after != before {
		t.Errorf("the process went from %s to %s", before, after)
	}
}
