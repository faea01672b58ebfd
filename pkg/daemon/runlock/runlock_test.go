// SPDX-License-Identifier: Apache-2.0

package runlock

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestTake: of two that take a lock one has it, until it releases it.
func TestTake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for range 2 {
		release, err := Take(dir, Agent)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Take(dir, Agent); !errors.Is(err, ErrHeld) {
			t.Errorf("a second: %v", err)
		}
		other, err := Take(dir, "other.lock")
		if err != nil {
			t.Fatal(err)
		}
		other()
		release()
	}
}
