// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCheckedIn: the code in the repository is what its .proto files say.
func TestCheckedIn(t *testing.T) {
	const dir = "../../api/nsm"
	code, err := generate(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(code) == 0 {
		t.Fatal("nothing was generated")
	}
	for name, want := range code {
		have, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%v: run go run -C tools ./protos", err)
			continue
		}
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s differs from its .proto: run go run -C tools ./protos\n%s", name, diff)
		}
	}
}
