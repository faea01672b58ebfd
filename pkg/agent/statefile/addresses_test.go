// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	dir := Addresses(filepath.Join(t.TempDir(), "addresses"))
	expect := func(name string, want ...Address) {
		t.Helper()
		if got, err := dir.Read(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	expect("there is no folder")
	a := Address{netip.MustParseAddr("10.0.0.1"), "cali1", ""}
	b := Address{netip.MustParseAddr("10.0.0.1"), "cali1", "c 1"}
	c := Address{netip.MustParseAddr("fd00::1"), "cali1", "c1"}
	for _, a := range []Address{a, b, c, c} {
		if err := dir.Add(a); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"10.0.0.2", "cali1 10.0.0.2", "x"} {
		if err := os.WriteFile(filepath.Join(string(dir), name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect("all, and what others left", a, b, c)
	for range 2 {
		if err := dir.Remove(a); err != nil {
			t.Error(err)
		}
	}
	expect("one is off", b, c)
	outside, long := c, c
	outside.Container, long.Container = "/../../outside", strings.Repeat("c", 300)
	for _, a := range []Address{outside, long} {
		if err := dir.Add(a); err != nil {
			t.Error(err)
		}
	}
	c.Container = ""
	expect("a path, and one that is too long for a name", b, c, outside, Address{c.Addr, c.Interface, "c1"})
	if err := Addresses("/proc/self/none").Add(a); err == nil || err.Error() != "write to /proc/self/none: no such file or directory" {
		t.Errorf("%v", err)
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("10.0.0.1 cali1 c1")
	f.Add("fd00::1 cali1")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		if again, err := ParseAddress(a.String()); err != nil || again != a {
			t.Errorf("%q: %v, then %v, %v", s, a, again, err)
		}
	})
}
