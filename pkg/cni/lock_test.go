// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"path/filepath"
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
