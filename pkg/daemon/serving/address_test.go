// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"strings"
	"testing"
)

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

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]Address{
		"": {}, "0": {}, " 0 ": {}, ":9094": {true, "", 9094}, "127.0.0.1:1": {true, "127.0.0.1", 1}, "localhost:65535": {true, "localhost", 65535},
		"[::1]:80": {true, "::1", 80}, "[fe80::1%lo]:80": {true, "fe80::1%lo", 80},
	} {
		if got, err := ParseAddress(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"9094", "localhost", "node-1:80", "::1:80", ":0", ":65536", ":http", "127.0.0.1:", "[ff02::1]:80", "[fe80::1]:80"} {
		if got, err := ParseAddress(text); err == nil || !strings.Contains(err.Error(), "address \""+text+"\": want host:port or :port") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
