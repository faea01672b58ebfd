// SPDX-License-Identifier: Apache-2.0

package diags

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzRedact: whatever key and value etcd has, the archive has the whole value or none of it, and the key alone decides which.
func FuzzRedact(f *testing.F) {
	f.Add("/calico/v1/config/LogSeverityScreen", "info")
	f.Add("/calico/v1/config/Password", "geheim")
	f.Add("/calico/v1/Ready", `{"secret":1}`)
	f.Add("/other", "x")
	f.Fuzz(func(t *testing.T, key, value string) {
		line, err := json.Marshal(map[string]string{"key": key, "value": value})
		if err != nil {
			t.Fatal(err)
		}
		out := redactKeys(append(line, '\n'))
		var l struct{ Key, Value string }
		if err := json.Unmarshal(out, &l); err != nil || bytes.Count(out, []byte("\n")) != 1 {
			t.Fatalf("%q: %v", out, err)
		}
		if known := isKnown(key, value); key != "" && !known && l.Value != removed {
			t.Errorf("%q", out)
		}
	})
}
