// SPDX-License-Identifier: Apache-2.0

package kernel

import "testing"

// FuzzLink: whatever the kernel says of a link, nothing panics.
func FuzzLink(f *testing.F) {
	f.Add([]byte(*getLink(0, "cali1"))[16:])
	f.Fuzz(func(_ *testing.T, b []byte) {
		if l, ok := parseLink(b); ok {
			l.conf4.at(25)
			l.conf6.at(22)
		}
	})
}
