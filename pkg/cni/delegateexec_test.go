// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/calico-go/calico/netconf"
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

// TestPluginThatLeavesAProcess runs a plugin that ends, and leaves a process with its
// output and the lock. The call ends as the plugin does, and the lock with the call.
func TestPluginThatLeavesAProcess(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n(read -r word <\"$0.fifo\") &\necho said; exit ${FAIL:-0}\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path+".fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	s := &session{locks: newLocks(dir), log: quiet(), conf: &netconf.Config{}}
	if err := s.lockInterface(t.Context(), "cali1"); err != nil {
		t.Fatal(err)
	}
	e := s.exec()
	if out, err := e.ExecPlugin(t.Context(), path, nil, os.Environ()); err != nil || string(out) != "said\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := e.ExecPlugin(t.Context(), path, nil, append(os.Environ(), "FAIL=1")); err == nil {
		t.Error("its failure is lost")
	}
	if _, err := s.locks.try(interfaceLock("cali1")); err == nil {
		t.Error("the lock is free before the end of the call")
	}
	for _, cleanup := range s.cleanup {
		cleanup()
	}
	release, err := s.locks.try(interfaceLock("cali1"))
	if err != nil {
		t.Errorf("after the call: %v", err)
	} else {
		release()
	}
	// A reader is there: both that were left still live.
	w, err := os.OpenFile(path+".fifo", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
}
