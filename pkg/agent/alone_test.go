// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// TestSecondAgent: it takes nothing from the first, and may come when that has ended.
func TestSecondAgent(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	first, err := alone(run)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Node: "host-2", RunDir: run, VarDir: filepath.Join(dir, "var"), ConfigFile: filepath.Join(dir, "none"), Health: "0", Metrics: "0",
		Store: store.Config{Endpoints: []string{"http://127.0.0.1:1"}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := "another calico-node, process " + strconv.Itoa(os.Getpid()) + ", runs with this directory: stop it first"
	if err := Run(ctx, cfg); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "var", NodenameName)); err == nil {
		t.Error("the second agent changed the node's name")
	}
	first()
	next, err := alone(run)
	if err != nil {
		t.Fatal(err)
	}
	next()
}

// TestSecondAgentInNetwork: one with other directories is refused as well, for both
// would write the same table of the firewall; one that no longer runs stands in
// nobody's way, and neither does a stranger who took the name.
func TestSecondAgentInNetwork(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	running := h.spawn()
	h.ready()
	second := h.config()
	second.RunDir, second.VarDir = filepath.Join(h.dir, "run2"), filepath.Join(h.dir, "var2")
	second.Health, second.Metrics = "0", "0"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := fmt.Sprintf("another calico-node, process %d, is at work here: stop it first", running.Process.Pid)
	if err := Run(ctx, second); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %s", err, want)
	}
	if _, err := os.Stat(filepath.Join(second.VarDir, NodenameName)); err == nil {
		t.Error("the second agent left its name")
	}
	h.ready()
	h.kill(running)
	stop := h.start()
	h.ready()
	stop()

	stranger := exec.Command("/proc/self/exe")
	stranger.Env = append(os.Environ(), strangerVariable+"=1")
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	})
	h.until("the stranger has the name", func() bool {
		leave, doubt, err := aloneInNetwork()
		if err != nil {
			t.Fatal(err)
		}
		leave()
		return doubt != nil && strings.Contains(doubt.Error(), "of user 65534")
	})
	h.start()
	h.ready()
}

// beStranger holds the name of the lock, as any user may.
func beStranger() int {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: networkLock, Net: "unix"})
	for errors.Is(err, syscall.EADDRINUSE) { // whoever looks for the stranger has it for a moment
		time.Sleep(time.Millisecond)
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: networkLock, Net: "unix"})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		if _, err := l.Accept(); err != nil {
			return 1
		}
	}
}
