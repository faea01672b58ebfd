// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"strings"
	"testing"
)

// FuzzReport: either a report is refused as a whole, with its name, or all of its addresses can be freed.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"revision":7,"violations":[{"invariant":1,"key":"k","text":"t"}],"unused":[{"address":"10.65.0.1","block":"10.65.0.0/26","handle":"h","attributes":{"a":"b"}}]}`))
	f.Add([]byte(`{"unused":[{"address":"10.65.0.1"},{"address":"fe80::1%eth0"}]}`))
	f.Add([]byte(`{"unused":[]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseReport("report.json", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "report.json: ") || len(err.Error()) > 500 {
				t.Fatal(err)
			}
			return
		}
		for _, u := range list {
			if a, err := parseAddr(u.Address); err != nil || !a.IsValid() || a.Zone() != "" || a.Is4In6() {
				t.Errorf("%+v: %v, %v", u, a, err)
			}
		}
	})
}
