// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzBGPState: the state in a file is written back completely as it was read; if it isn't used, the reason names the file.
func FuzzBGPState(f *testing.F) {
	good := newStateFile(f.TempDir(), "h", "boot/1")
	if err := good.write(everything().Speaker.RouterID, everything()); err != nil {
		f.Fatal(err)
	}
	sample, err := os.ReadFile(good.path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	f.Add(append(sample, sample...))
	f.Add(sample[:len(sample)/2])
	f.Add([]byte(`{"Version":1,"Host":"h","RouterID":"fd00::1"}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		state := newStateFile(dir, "h", "boot/1")
		if err := os.WriteFile(state.path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		id, d, err := state.read()
		if err != nil {
			if !strings.Contains(err.Error(), filepath.Join(dir, BGPStateName)) {
				t.Fatal(err)
			}
			return
		}
		if id.IsValid() && !id.Is4() {
			t.Fatal(id)
		}
		if !json.Valid(data) {
			t.Fatal("a part of it is passed over")
		}
		if err := state.write(id, d); err != nil {
			t.Fatal(err)
		}
		againID, again, err := state.read()
		if err != nil || againID != id {
			t.Fatal(againID, id, err)
		}
		equalDesired(t, "read again", d, again)
	})
}
