// SPDX-License-Identifier: Apache-2.0

package link

import "testing"

// FuzzLink: whatever the kernel says of a link, nothing panics.
func FuzzLink(f *testing.F) {
	f.Add([]byte(*GetMessage(0, "cali1"))[16:])
	f.Fuzz(func(_ *testing.T, b []byte) {
		if l, ok := Parse(b); ok {
			l.Conf4.At(25)
			l.Conf6.At(22)
		}
	})
}
