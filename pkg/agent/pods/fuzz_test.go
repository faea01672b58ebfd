// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzUnshaped: network configurations of other plugins, whatever they contain, don't change the result for ours.
func FuzzUnshaped(f *testing.F) {
	f.Add([]byte(`{"plugins":[{"type":"bridge","capabilities":{"bandwidth":true}}]}`))
	f.Add([]byte(`{"type":"ptp"}`))
	f.Add([]byte(`{"plugins":{}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, text := range map[string]string{"00-theirs.conflist": string(data), "10-calico.conflist": `{"plugins":[{"type":"calico"}]}`} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if theirs := !bytes.Contains(data, []byte("calico")) && !bytes.Contains(data, []byte(`\u`)); theirs && !Unshaped(dir) {
			t.Errorf("%q", data)
		}
	})
}
