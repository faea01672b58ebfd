// SPDX-License-Identifier: Apache-2.0

package status

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzLeases: the leases in a file are written back as they were read, and no more of them than are kept.
func FuzzLeases(f *testing.F) {
	f.Add("694d8f 0f0e/2a\n694d90\n")
	f.Add(strings.Repeat("1\n", 2*maxLeases))
	f.Add("-1 x\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(filepath.Join(dir, LeasesName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := openLeases(dir, "here")
		if err != nil {
			if len(l.all) > 0 || len(err.Error()) > 500 {
				t.Fatal(l.all, err)
			}
			return
		}
		if again, err := parseLeases(string(formatLeases(l.all))); err != nil || !slices.Equal(l.all, again) {
			t.Fatalf("%v are %v, %v", l.all, again, err)
		}
		if err := l.take(7); err != nil || len(l.all) > maxLeases || !l.owns(7) {
			t.Fatal(l.all, err)
		}
	})
}
