// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"golang.org/x/sys/unix"
)

// TestStoppedPlugins runs plugins that never end. They are stopped, with all
// that they have started: every process of theirs has the lock.
func TestStoppedPlugins(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		timeout      time.Duration
		want         stoppedError
	}{
		{"waits for nobody", "(read -r word <\"$0.fifo\")\n:", 50 * time.Millisecond, stoppedError{"it did not answer within 50ms"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			l := newLocks(dir)
			lock, _, err := l.takeFile(t.Context(), 7)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "plugin")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(path+".fifo", 0o600); err != nil {
				t.Fatal(err)
			}
			e := delegateExec{DefaultExec: invoke.DefaultExec{RawExec: &invoke.RawExec{}}, lock: lock, name: "plugin", timeout: tt.timeout}
			_, err = e.ExecPlugin(t.Context(), path, nil, os.Environ())
			if stopped, ok := errors.AsType[*stoppedError](err); !ok || *stopped != tt.want {
				t.Errorf("got %v", err)
			}
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
			release, _, err := l.take(t.Context(), 7)
			if err != nil {
				t.Fatal(err)
			}
			release()
		})
	}
}
