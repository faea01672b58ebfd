// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestLocks(t *testing.T) {
	l := NewLocks(filepath.Join(t.TempDir(), "run", "calico"))
	ctx := t.Context()
	release, err := l.take(ctx, ipamLock)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := l.Interface(ctx, "cali1")
	if err != nil {
		t.Fatal("another byte:", err)
	}
	if _, err := l.Try(InterfaceLock("cali1")); err == nil {
		t.Fatal("an interface's lock is taken twice")
	}
	other()
	if _, err := l.Try(ipamLock); err == nil {
		t.Fatal("taken twice")
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := l.take(short, ipamLock); !errors.Is(err, context.Canceled) {
		t.Errorf("bounded waiting: %v", err)
	}
	release()
	// A waiter that gave up drops the lock as soon as it gets it.
	if release, err = l.take(ctx, ipamLock); err != nil {
		t.Fatal(err)
	}
	release()
}

func TestLocksExclude(t *testing.T) {
	l := NewLocks(t.TempDir())
	var all sync.WaitGroup
	var inside, n atomic.Int64
	for range 20 {
		all.Go(func() {
			for range 20 {
				release, err := l.take(t.Context(), ipamLock)
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

// TestHints checks that the lock file remembers blocks.
func TestHints(t *testing.T) {
	l := NewLocks(t.TempDir())
	check := func(after string, blocks ...netip.Prefix) {
		t.Helper()
		if got := l.hints(); !slices.Equal(got, blocks) {
			t.Errorf("after %s: hints %v, want %v", after, got, blocks)
		}
	}
	check("nothing")
	release, err := l.take(t.Context(), ipamLock)
	if err != nil {
		t.Fatal(err)
	}
	release()
	check("a lock")
	one, two := netip.MustParsePrefix("10.0.0.0/26"), netip.MustParsePrefix("fd00::/122")
	l.remember([]netip.Prefix{one})
	l.remember([]netip.Prefix{two})
	check("two calls", two, one)
	if err := os.WriteFile(l.path, bytes.Repeat([]byte("x"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	check("garbage")
}
