// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// soon is for what must come, however busy the machine is.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// traces are what a lab of that name has left on the machine.
func traces(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	for _, path := range []string{filepath.Join(Root, name), filepath.Join(Root, name+".lock")} {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, filepath.Join(Root, name)+"/") {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		// A zombie's is empty; one that is gone meanwhile can't be read.
		if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), filepath.Join(Root, name)+"/") {
			found = append(found, p+" "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}

func TestLabLeavesNothing(t *testing.T) {
	data := t.TempDir()
	machine, err := Namespace{"/proc/self/ns/net"}.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Name: "leaves-nothing", Hosts: []string{"a", "b"}, NoAgent: true, BinDir: Build(t, BuildOptions{}), DataDir: data}
	l, err := Start(soon(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(traces(t, l.Name())) == 0 {
		t.Error("a running lab has left no trace that this test would find")
	}
	if _, err := Start(soon(t), cfg); !errors.Is(err, errOwned) {
		t.Errorf("a second lab of the same name: got %v, want %v", err, errOwned)
	}
	if err := Remove(l.Name()); !errors.Is(err, errOwned) {
		t.Errorf("remove the lab of a living process: got %v, want %v", err, errOwned)
	}
	if swept, err := Sweep(); err != nil || len(swept) > 0 {
		t.Errorf("sweep beside a living lab: got %v, %v", swept, err)
	}
	if err := l.Host("a").Ping(soon(t), l.Host("b")); err != nil {
		t.Error(err)
	}
	inside := exec.Command("sleep", "600") // as calico-lab exec does
	if err := l.Host("a").Do(inside.Start); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := inside.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Error("what ran in a host:", err)
	}
	if found := traces(t, l.Name()); len(found) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(found, "\n"))
	}
	if entries, _ := os.ReadDir(data); len(entries) > 0 {
		t.Errorf("left in the data directory: %v", entries)
	}
	after, err := Namespace{"/proc/self/ns/net"}.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(machine, after); diff != "" {
		t.Errorf("the machine's own network has changed (-before +after):\n%s", diff)
	}
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	// The first host's line is written when etcd runs.
	log := writerFunc(func(p []byte) (int, error) {
		if strings.HasPrefix(string(p), "host a") {
			cancel()
		}
		return len(p), nil
	})
	_, err := Start(ctx, Config{
		Name: "interrupted", Hosts: []string{"a", "b"}, NoAgent: true,
		BinDir: Build(t, BuildOptions{}), DataDir: t.TempDir(), Log: log,
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if found := traces(t, "interrupted"); len(found) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(found, "\n"))
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestHosts(t *testing.T) {
	l := ForTest(t, Config{Hosts: []string{"a"}, NoAgent: true})
	b, err := l.AddHost(soon(t), "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Ping(soon(t), l.Host("a")); err != nil {
		t.Error(err)
	}
	if reaches(t, b, Address(netip.MustParseAddr("172.20.200.200"))) {
		t.Error("an address that nobody has answered a ping")
	}
	for _, name := range []string{"a", "fabric", "", "A", "../x", strings.Repeat("x", 41)} {
		if _, err := l.AddHost(soon(t), name); err == nil {
			t.Errorf("host %q was made", name)
		}
	}
	out, err := b.Exec(soon(t), "sh", "-c", "echo $NODENAME $ETCD_ENDPOINTS; readlink /proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(out), "b http://172.20.0.11:2379\nnet:[") || strings.Contains(string(out), own) {
		t.Errorf("on host b: %q", out)
	}
	if _, err := l.FindHost("c"); err == nil || !strings.Contains(err.Error(), "there is a, b") {
		t.Errorf("find a host that doesn't exist: %v", err)
	}
}

// TestSmallPools has pools that are no larger than a block by default is.
func TestSmallPools(t *testing.T) {
	pools := []netip.Prefix{netip.MustParsePrefix("10.80.0.0/29"), netip.MustParsePrefix("10.81.0.0/26"), netip.MustParsePrefix("fd00:80::/125")}
	l := ForTest(t, Config{Hosts: []string{"a"}, NoAgent: true, Pools: pools})
	dump, _, err := l.Dump(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, e := range dump {
		if pool, ok := e.Value.(model.Pool); ok {
			sizes = append(sizes, pool.BlockSize)
		}
	}
	if want := []int{29, 26, 125}; !slices.Equal(sizes, want) {
		t.Errorf("blocks of %v, want %v", sizes, want)
	}
}

func TestEtcdHistory(t *testing.T) {
	l := ForTest(t, Config{NoAgent: true, Pools: []netip.Prefix{}})
	key := model.GlobalConfigKey{Name: "LogSeverityScreen"}
	var revisions []int64
	for _, value := range []model.Text{"one", "two"} {
		rev, err := l.Etcd().Commit(soon(t), model.Change{Puts: []model.Put{{Key: key, Value: value}}})
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, rev)
	}
	at := func(revision int64) (string, error) {
		entries, _, err := l.DumpAt(soon(t), revision)
		for _, e := range entries {
			if e.Key == model.Key(key) {
				return string(e.Value.(model.Text)), err
			}
		}
		return "", err
	}
	for revision, want := range map[int64]string{revisions[0]: "one", revisions[1]: "two", 0: "two"} {
		if got, err := at(revision); got != want || err != nil {
			t.Errorf("at revision %d: got %q, %v, want %q", revision, got, err, want)
		}
	}
	if err := l.Members().Compact(soon(t), revisions[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := at(revisions[0]); err == nil {
		t.Error("a compacted revision was read")
	}

	write := func() error {
		_, err := l.Etcd().Commit(soon(t), model.Change{Puts: []model.Put{{Key: key, Value: model.Text("three")}}})
		return err
	}
	if err := l.Members().SetReadOnly(soon(t), true); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("write while etcd is read-only: got %v, want %v", err, store.ErrReadOnly)
	}
	if err := l.Members().SetReadOnly(soon(t), false); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("write after the alarm: %v", err)
	}
}
