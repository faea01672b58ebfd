// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "deep", "name")
	for _, content := range []string{"one\n", "two\n"} {
		if err := Write(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != content || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("two\n")); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) || after.Mode() != 0o644 {
		t.Errorf("a file that was right: %v, %v", after, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if len(entries) != 1 || err != nil {
		t.Errorf("left beside it: %v, %v", entries, err)
	}
	// What is said of a failure is the same with each try.
	if err := os.MkdirAll(filepath.Join(dir, "taken", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{
		"write /proc/self/name: no such file or directory": "/proc/self/name",
		"write " + dir + "/taken: file exists":             filepath.Join(dir, "taken"),
	} {
		if err := Write(path, nil); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := Write(filepath.Join(path, "x"), nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("below a file: %v", err)
	}
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for _, step := range []struct {
		name string
		make func() error
	}{
		{"new", func() error { return nil }},
		{"readable by all", func() error { return os.Chmod(path, 0o644) }},
		{"a link", func() error {
			if err := os.Rename(path, path+".else"); err != nil {
				return err
			}
			return os.Symlink(path+".else", path)
		}},
	} {
		if err := step.make(); err != nil {
			t.Fatal(err)
		}
		if err := Replace(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", step.name, info.Mode(), err)
		}
	}
	left, other := filepath.Join(filepath.Dir(path), ".secret.123"), filepath.Join(filepath.Dir(path), ".secrets.123")
	for _, name := range []string{left, other} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Replace(path, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a write left that was killed: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another's: %v", err)
	}
	if err := Replace(filepath.Join(filepath.Dir(path), "none", "x"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that isn't there: %v", err)
	}
}
