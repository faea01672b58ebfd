// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnprivileged starts an agent without a capability that it needs: it reports that and leaves nothing behind.
func TestUnprivileged(t *testing.T) {
	for lost, name := range map[uint]string{unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN"} {
		var log bytes.Buffer
		cfg := Config{Node: "h", RunDir: filepath.Join(t.TempDir(), "run"), VarDir: filepath.Join(t.TempDir(), "var")}
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			var sets [2]unix.CapUserData
			head := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			err := unix.Capget(head, &sets[0])
			sets[lost/32].Effective &^= 1 << (lost % 32)
			if err == nil {
				err = unix.Capset(head, &sets[0])
			}
			if err != nil {
				t.Error(err)
			}
			env, err := Daemon(new(Config), "h").Prepare("", nil, nil, &log)
			if err != nil {
				t.Error(err)
			}
			done <- Run(t.Context(), cfg, env)
		}()
		err := <-done
		if err == nil || !strings.Contains(err.Error(), " has not "+name+": run it as root") {
			t.Errorf("without %s: %v", name, err)
		}
		for _, dir := range []string{cfg.RunDir, cfg.VarDir} {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("without %s: there is %s", name, dir)
			}
		}
		if log.Len() > 0 {
			t.Errorf("without %s it logs %s", name, &log)
		}
	}
}
