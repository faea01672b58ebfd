// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

func TestRestart(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	c := newCluster(ctx, t, network{})
	a := c.must(ctx, "a")
	c.restart(ctx, func() { c.stop(syscall.SIGTERM) })
	c.reachable(ctx, a)

	b := c.must(ctx, "b")
	c.restart(ctx, func() { c.stop(syscall.SIGKILL) })
	c.reachable(ctx, a)
	c.reachableFrom(ctx, b, a)

	// Between the two calls of DEL.
	if err := c.stopSandbox(ctx, a); err != nil {
		t.Fatal(err)
	}
	c.restart(ctx, func() { c.stop(syscall.SIGKILL) })
	if err := c.removeSandbox(ctx, a); err != nil {
		t.Fatal(err)
	}
	c.gone(ctx, a, 2)
	c.finish(ctx, b)
	c.nothingLeft(ctx)
}

// TestInterrupted kills containerd while it makes sandboxes. What it then knows of, it is told to remove.
func TestInterrupted(t *testing.T) {
	const count = 10
	ctx := within(t, 4*time.Minute)
	c := newCluster(ctx, t, network{})
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			// The call fails, or is done just before; which of them doesn't matter.
			_, err := c.runSandbox(ctx, fmt.Sprintf("pod-%d", i))
			t.Logf("pod-%d: error %v", i, err)
		})
	}
	eventually.Nil(t, "some pods to have an endpoint", func() error {
		endpoints := 0
		for _, e := range c.dump(ctx) {
			if _, ok := e.Key.(model.WorkloadEndpointKey); ok {
				endpoints++
			}
		}
		if endpoints < 3 {
			return fmt.Errorf("%d have", endpoints)
		}
		return nil
	})
	c.restart(ctx, func() { c.stop(syscall.SIGKILL) })
	wg.Wait()
	c.removeAll(ctx)
	// A namespace that it had made but not yet noted down is containerd's own to lose; what was in it must be gone.
	c.clean.Namespaces = c.state(ctx).Namespaces
	c.nothingLeft(ctx)
}
