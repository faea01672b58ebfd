// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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
	// On a busy machine the other may come only when the lock is free again.
	for pause, waited := 20*time.Millisecond, false; !waited; pause *= 2 {
		if pause > time.Minute {
			t.Fatal("it did not wait")
		}
		got := make(chan error)
		go func() {
			again, has, err := l.take(ctx, ipamLock)
			if waited = has; err == nil {
				again()
			}
			got <- err
		}()
		short, cancel := context.WithTimeout(ctx, pause)
		if _, _, err := l.take(short, ipamLock); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("bounded waiting: %v", err)
		}
		cancel()
		release()
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		// One that gave up drops the lock when it gets it.
		if release, _, err = l.take(ctx, ipamLock); err != nil {
			t.Fatal(err)
		}
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

// TestLockFileNotes has what the lock file says side by side.
func TestLockFileNotes(t *testing.T) {
	l := newLocks(t.TempDir())
	check := func(after string, revision int64, blocks ...netip.Prefix) {
		t.Helper()
		if got := l.lastCommit(); got != revision {
			t.Errorf("after %s: last commit %d, want %d", after, got, revision)
		}
		if got := l.hints(); !slices.Equal(got, blocks) {
			t.Errorf("after %s: hints %v, want %v", after, got, blocks)
		}
	}
	check("nothing", 0)
	l.committed(5)
	check("a commit without a file", 0)
	release, _, err := l.take(t.Context(), ipamLock)
	if err != nil {
		t.Fatal(err)
	}
	release()
	check("a lock", 0)
	one, two := netip.MustParsePrefix("10.0.0.0/26"), netip.MustParsePrefix("fd00::/122")
	l.committed(math.MaxInt64)
	check("a commit", math.MaxInt64)
	l.remember([]netip.Prefix{one})
	l.remember([]netip.Prefix{two})
	check("hints", math.MaxInt64, two, one)
	l.committed(7)
	check("another commit", 7, two, one)
	if err := os.WriteFile(l.path, bytes.Repeat([]byte("x"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	check("garbage", 0)
}
