// SPDX-License-Identifier: Apache-2.0

package logopen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAppendByLinks: root's own links lead to a log, also by another and to a disk that has no file yet. Somebody else's don't.
func TestAppendByLinks(t *testing.T) {
	dir, disk := t.TempDir(), t.TempDir()
	link := func(to, name string, owner int) string {
		path := filepath.Join(dir, name)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(path, owner, owner); err != nil && owner != os.Geteuid() {
			t.Fatal("run as root, to have links of somebody else: ", err)
		}
		return path
	}
	victim := filepath.Join(disk, "victim")
	if err := os.WriteFile(victim, []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := os.Geteuid()
	log := filepath.Join(disk, "calico.log")
	for _, path := range []string{log, link(log, "direct", own), link("direct", "twice", own)} {
		f, err := Append(path, 0o600)
		if err != nil {
			t.Fatal(path, err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Error(path, err)
		}
		_ = f.Close()
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != "xxx" {
		t.Errorf("%q, %v", text, err)
	}
	foreign := link(victim, "foreign", own+1000)
	for _, path := range []string{foreign, link("foreign", "by-own", own)} {
		if f, err := Append(path, 0o600); err == nil || !strings.Contains(err.Error(), "it is a link that user") {
			t.Errorf("%s: %v, %v", path, f, err)
		}
	}
	if f, err := Append(link("circle", "circle", own), 0o600); err == nil {
		t.Errorf("a circle: %v", f)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "whole" {
		t.Errorf("the victim: %q, %v", text, err)
	}
}
