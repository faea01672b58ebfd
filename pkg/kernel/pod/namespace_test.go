// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/netns"
	"golang.org/x/sys/unix"
)

func fdOf(ns *Namespace) string { return strconv.Itoa(int(ns.Fd())) }

func TestOpenNamespaceErrors(t *testing.T) {
	for _, gone := range []string{"/run/netns/no-such-namespace", "/proc/2147483647/ns/net"} {
		if _, err := OpenNamespace(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("OpenNamespace(%q): %v", gone, err)
		}
	}
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, pipe, t.TempDir(), "/proc/self/ns/mnt", "/dev/null"} {
		if ns, err := OpenNamespace(path); err == nil {
			ns.Close()
			t.Errorf("OpenNamespace(%q) succeeded", path)
		} else if !strings.Contains(err.Error(), "namespace") || !strings.Contains(err.Error(), path) {
			t.Errorf("OpenNamespace(%q): %v", path, err)
		}
	}
}

// newPod opens a new network namespace.
func newPod(tb testing.TB) *Namespace {
	tb.Helper()
	ns, err := OpenNamespace(fmt.Sprintf("/proc/self/fd/%d", netns.New(tb).Fd()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(ns.Close)
	return ns
}
