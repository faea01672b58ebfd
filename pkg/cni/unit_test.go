// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/store"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestIdentity(t *testing.T) {
	e := environ{containerID: "0123abc", ifName: "eth0"}
	id := newIdentity("net1", "node-1", e)
	if got := id.key.Path(); got != "/calico/v1/host/node-1/workload/cni/0123abc/endpoint/eth0" {
		t.Error(got)
	}
	e.args = netconf.Args{PodNamespace: "default", PodName: "web-0"}
	id = newIdentity("net1", "node-1", e)
	if got := id.key.Path(); got != "/calico/v1/host/node-1/workload/k8s/default.web-0/endpoint/eth0" {
		t.Error(got)
	}
	if id.handle != "net1.0123abc.eth0" || id.alias != "calico net1.0123abc.eth0" {
		t.Errorf("handle %s, alias %s", id.handle, id.alias)
	}
	// SHA-1 of default.web-0 and of default.web-0.net1.
	if got := hostInterface("default.web-0", "eth0"); got != "cali0d7763386da" {
		t.Error(got)
	}
	if got := hostInterface("default.web-0", "net1"); got == hostInterface("default.web-0", "eth0") || len(got) != 15 {
		t.Error(got)
	}
}

func TestAlias(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		network, container string
		mine, others       []string
	}{
		{"net1", "c1", []string{"net1"}, []string{"net2", "net", "net1.c"}},
		{"net1", long, []string{"net1"}, []string{"net2", "net"}},
		{"a.b", "c", []string{"a.b", "a"}, []string{"b"}}, // "a" may be meant: gc asks etcd
	} {
		alias := linkAlias(tt.network, handleID(tt.network, tt.container, "eth0"))
		if len(alias) > maxAlias || !isOurAlias(alias) {
			t.Errorf("alias %q", alias)
		}
		for _, n := range tt.mine {
			if !aliasOfNetwork(alias, n) {
				t.Errorf("%q is not of %s", alias, n)
			}
		}
		for _, n := range tt.others {
			if aliasOfNetwork(alias, n) {
				t.Errorf("%q is of %s", alias, n)
			}
		}
	}
	if linkAlias("n", long+"1") == linkAlias("n", long+"2") {
		t.Error("two handles have one alias")
	}
}

func TestPodMAC(t *testing.T) {
	mac := podMAC("net1.c1.eth0")
	if mac != podMAC("net1.c1.eth0") || mac == podMAC("net1.c2.eth0") || mac[0]&0x03 != 0x02 {
		t.Errorf("MAC %s", mac)
	}
}

func TestLocks(t *testing.T) {
	l := newLocks(filepath.Join(t.TempDir(), "run", "calico"))
	ctx := t.Context()
	release, waited, err := l.take(ctx, ipamLock)
	if err != nil || waited {
		t.Fatal(waited, err)
	}
	other, waited, err := l.take(ctx, interfaceLock("cali1"))
	if err != nil || waited {
		t.Fatal("another byte:", waited, err)
	}
	other()
	if _, err := l.try(ipamLock); err == nil {
		t.Fatal("taken twice")
	}
	got := make(chan error)
	go func() {
		again, waited, err := l.take(ctx, ipamLock)
		if err == nil && !waited {
			err = errors.New("it did not wait")
		}
		if err == nil {
			again()
		}
		got <- err
	}()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, _, err := l.take(short, ipamLock); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("bounded waiting: %v", err)
	}
	release()
	if err := <-got; err != nil {
		t.Error(err)
	}
	// One that gave up drops the lock when it gets it.
	if release, _, err = l.take(ctx, ipamLock); err != nil {
		t.Fatal(err)
	}
	release()
}

func TestLocksExclude(t *testing.T) {
	l := newLocks(t.TempDir())
	var all sync.WaitGroup
	var inside, n atomic.Int64
	for range 20 {
		all.Go(func() {
			for range 20 {
				release, _, err := l.take(t.Context(), ipamLock)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two hold the lock")
				}
				n.Add(1)
				inside.Add(-1)
				release()
			}
		})
	}
	all.Wait()
	if n.Load() != 400 {
		t.Errorf("%d", n.Load())
	}
}

func TestLogRotation(t *testing.T) {
	dir := t.TempDir()
	conf := netconf.Log{File: filepath.Join(dir, "sub", "cni.log"), MaxSize: 1, MaxAge: 30, MaxCount: 2}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 5 {
		log, shut, err := newLogger(conf, io.Discard, now.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		log.Info(strings.Repeat(fmt.Sprint(i), 1<<20))
		shut()
	}
	got, err := filepath.Glob(filepath.Join(dir, "sub", "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"cni-20260101T000003.000000000.log", "cni-20260101T000004.000000000.log", "cni.log"}
	for i, w := range want {
		want[i] = filepath.Join(dir, "sub", w)
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	old := now.AddDate(0, 0, -60)
	if err := os.Chtimes(got[0], old, old); err != nil {
		t.Fatal(err)
	}
	conf.MaxCount = 0
	if _, shut, err := newLogger(conf, io.Discard, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	} else {
		shut()
	}
	if _, err := os.Stat(got[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of 60 days ago: %v", err)
	}
}

func TestNodename(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "nodename")
	empty := filepath.Join(dir, "empty")
	for name, content := range map[string]string{file: " node-1\n", empty: "\n"} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os_, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	for _, tt := range []struct {
		in   netconf.Nodename
		want string
		code uint
	}{
		{in: netconf.Nodename{Name: "n", File: file, Hostname: "h"}, want: "n"},
		{in: netconf.Nodename{File: file, Hostname: "h"}, want: "node-1"},
		{in: netconf.Nodename{File: missing, Hostname: "h"}, want: "h"},
		{in: netconf.Nodename{File: empty, Hostname: "h"}, want: "h"},
		{in: netconf.Nodename{File: missing}, want: strings.ToLower(os_)},
		{in: netconf.Nodename{File: missing, FileSet: true, FileOptional: true}, want: strings.ToLower(os_)},
		{in: netconf.Nodename{File: missing, FileSet: true}, code: CodeTryAgain},
		{in: netconf.Nodename{File: empty, FileSet: true}, code: CodeTryAgain},
	} {
		got, err := nodename(tt.in, quiet())
		if tt.code != 0 {
			if err == nil || explain(err).Code != tt.code {
				t.Errorf("%+v: %v", tt.in, err)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%+v: %q, %v, want %q", tt.in, got, err, tt.want)
		}
	}
}

func TestMTU(t *testing.T) {
	dir := t.TempDir()
	s := &session{env: environ{varDir: dir}, conf: &netconf.Config{}, log: quiet()}
	if got := s.mtu(); got != 1500 {
		t.Errorf("no file: %d", got)
	}
	for content, want := range map[string]int{"1440\n": 1440, "x": 1500, "": 1500, "9": 1500, "99999999": 1500} {
		if err := os.WriteFile(filepath.Join(dir, "mtu"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := s.mtu(); got != want {
			t.Errorf("%q: %d", content, got)
		}
	}
	s.conf.MTU = 9000
	if got := s.mtu(); got != 9000 {
		t.Errorf("configured: %d", got)
	}
}

func TestUndo(t *testing.T) {
	var u undoStack
	var order []string
	for _, name := range []string{"a", "b", "c"} {
		u.push(name, func(context.Context) error {
			order = append(order, name)
			return errors.New("refused")
		})
	}
	u.run(quiet())
	u.run(quiet())
	if !slices.Equal(order, []string{"c", "b", "a"}) {
		t.Errorf("undone in the order %v", order)
	}
}

func TestPanicInAGoroutine(t *testing.T) {
	s := &session{log: quiet()}
	err := s.async(func() error { panic("boom") }).wait()
	if e := explain(err); e.Code != CodeInternal || !strings.Contains(e.Text, "boom") {
		t.Errorf("%+v", e)
	}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code uint
	}{
		{fmt.Errorf("read: %w", store.ErrUnavailable), CodeTryAgain},
		{fmt.Errorf("read: %w", store.ErrAuth), CodeAuth},
		{fmt.Errorf("commit: %w", store.ErrReadOnly), CodeReadOnly},
		{fmt.Errorf("commit: %w", &store.ConflictError{}), CodeTryAgain},
		{context.DeadlineExceeded, CodeTryAgain},
		{errors.Join(failf(CodeKernel, "x", "y"), store.ErrUnavailable), CodeKernel},
		{errors.New("anything"), CodeInternal},
	} {
		if got := explain(tt.err); got.Code != tt.code {
			t.Errorf("%v: code %d, want %d", tt.err, got.Code, tt.code)
		}
	}
	for i, code := range []uint{100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110} {
		ours := []uint{
			CodeInternal, CodeAuth, CodeReadOnly, CodeNoPool, CodeExhausted, CodeAddress,
			CodeInterface, CodeCheck, CodeKernel, CodeRejected, CodeData,
		}
		if ours[i] != code {
			t.Errorf("code %d is documented as %d", ours[i], code)
		}
	}
}

// TestRunNeverSilent feeds calls that end early: each writes an error object and
// nothing else to stdout.
func TestRunNeverSilent(t *testing.T) {
	for _, env := range []map[string]string{
		{}, {"CNI_COMMAND": "X"}, {"CNI_COMMAND": "ADD"}, {"CNI_COMMAND": "STATUS"},
	} {
		var out strings.Builder
		code := Call{
			Plugin: Calico, Getenv: func(k string) string { return env[k] },
			Stdin: strings.NewReader("{}"), Stdout: &out, Stderr: io.Discard,
		}.Run(t.Context())
		if code != 1 || !strings.HasPrefix(out.String(), "{\n    \"code\": ") {
			t.Errorf("%v: exit code %d, %s", env, code, out.String())
		}
	}
}
