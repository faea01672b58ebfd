// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/calico-go/calico/test/lab"
)

// TestTLSSession has the calls after the first resume its session.
func TestTLSSession(t *testing.T) {
	r := newRig(t, lab.Config{TLS: true})
	kept := func() os.FileInfo {
		t.Helper()
		dir := filepath.Join(r.host.RunDir(), "etcd-sessions")
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%s: %v, %v, want one session", dir, entries, err)
		}
		info, err := entries[0].Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s: mode %v", entries[0].Name(), info.Mode())
		}
		return info
	}
	c := call(r.pod("p1"), r.conf(nil))
	r.add(c)
	first := kept()
	r.must(verb("DEL", c))
	r.must(verb("DEL", c))
	if !os.SameFile(first, kept()) {
		t.Error("a call had no use for the session of the first")
	}

	if err := r.lab.Members().Kill(1); err != nil {
		t.Fatal(err)
	}
	if err := r.lab.Members().Start(r.ctx(), 1); err != nil {
		t.Fatal(err)
	}
	r.add(c)
	second := kept()
	if os.SameFile(first, second) {
		t.Error("etcd was restarted, and the session is still the first")
	}
	r.must(verb("DEL", c))
	if !os.SameFile(second, kept()) {
		t.Error("the session after the restart was of no use")
	}
	r.empty()
}
