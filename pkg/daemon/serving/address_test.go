// SPDX-License-Identifier: Apache-2.0

package serving

import "testing"

func TestClashes(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1", "127.0.0.1", true}, {"127.0.0.1", "localhost", true}, {"127.0.0.1", "", true}, {"::1", "", true}, {"127.0.0.1", "::", true},
		{"127.0.0.1", "0.0.0.0", true}, {"::1", "0.0.0.0", false}, {"", "0.0.0.0", true}, {"127.0.0.1", "192.0.2.1", false}, {"", "", true},
	} {
		a, b := Address{true, test.a, 9}, Address{true, test.b, 9}
		if a.clashes(b) != test.want || b.clashes(a) != test.want {
			t.Errorf("%q and %q: %v, %v, want %v", test.a, test.b, a.clashes(b), b.clashes(a), test.want)
		}
		other, off := b, b
		other.Port, off.Enabled = 10, false
		if a.clashes(other) || a.clashes(off) {
			t.Errorf("%q and %q clash at another port, or turned off", test.a, test.b)
		}
	}
}
