// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// within bounds a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// gone checks that nothing of a pod is left, and how often containerd says that it took its network away: once when the
// sandbox is stopped, and again, without a namespace, when it is removed.
func (c *cluster) gone(ctx context.Context, p *pod) {
	c.t.Helper()
	if e, ok := c.endpoint(ctx, p); ok {
		c.t.Errorf("etcd still has the endpoint of %s: %+v", p.name, e)
	}
	said := fmt.Sprintf(`TearDown network for sandbox \"%s\" successfully`, p.sandbox)
	if n := strings.Count(c.log(), said); n != 2 {
		c.t.Errorf("containerd's log says %d times that it took the network of %s away, want 2", n, p.name)
	}
}

// finish stops and removes a pod.
func (c *cluster) finish(ctx context.Context, p *pod) {
	c.t.Helper()
	if err := c.stopSandbox(ctx, p); err != nil {
		c.t.Error(err)
	}
	if err := c.removeSandbox(ctx, p); err != nil {
		c.t.Error(err)
	}
	c.gone(ctx, p)
}

func TestPlain(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	c := newCluster(ctx, t)
	recordCalls(t, c.bin)

	a, b := c.must(ctx, "a"), c.must(ctx, "b")
	for _, p := range []*pod{a, b} {
		if len(p.addrs) != 2 || !p.addrs[0].Is4() || !p.addrs[1].Is6() {
			t.Fatalf("%s has the addresses %v: want one of each family, IPv4 first", p.name, p.addrs)
		}
		e, ok := c.endpoint(ctx, p)
		if !ok {
			t.Fatalf("etcd has no endpoint of %s", p.name)
		}
		if diff := cmp.Diff(p.addrs, e.Addrs(), cmpopts.EquateComparable()); diff != "" {
			t.Errorf("addresses of %s (-runtime +etcd):\n%s", p.name, diff)
		}
		if e.ContainerID != p.sandbox {
			t.Errorf("the endpoint of %s belongs to %q, the sandbox is %q", p.name, e.ContainerID, p.sandbox)
		}
		if now := c.state(ctx); !slices.Contains(now.Links, e.Name) {
			t.Errorf("%s: no interface %s on the host: %v", p.name, e.Name, now.Links)
		}
		c.reachable(ctx, p)
	}
	c.reachableFrom(ctx, a, b)
	c.reachableFrom(ctx, b, a)

	// Stopped, then removed: DEL with the namespace, then without.
	c.finish(ctx, a)
	if diff := cmp.Diff([]string{"ADD", "DEL", "DEL without netns"}, calls(t, c.bin, a.sandbox)); diff != "" {
		t.Errorf("calls for a (-want +got):\n%s", diff)
	}
	c.reachable(ctx, b)

	// Removed while it runs, and again when it is gone.
	for range 2 {
		if err := c.removeSandbox(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	c.gone(ctx, b)
	c.nothingLeft(ctx)
}

// TestReplaced is what a kubelet does when a sandbox died: a new one of the same pod is made before the old is removed.
func TestReplaced(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	c := newCluster(ctx, t)
	old := c.must(ctx, "a")
	next := c.must(ctx, "a", func(s *cri.PodSandboxConfig) { s.Metadata.Attempt = 1 })
	c.reachable(ctx, next)

	// The late DEL of the old sandbox must not touch what is the new one's.
	if err := c.stopSandbox(ctx, old); err != nil {
		t.Error(err)
	}
	if err := c.removeSandbox(ctx, old); err != nil {
		t.Error(err)
	}
	e, ok := c.endpoint(ctx, next)
	if !ok || e.ContainerID != next.sandbox {
		t.Errorf("endpoint: %v, of %q: want the one of %q", ok, e.ContainerID, next.sandbox)
	}
	c.reachable(ctx, next)
	c.finish(ctx, next)
	c.nothingLeft(ctx)
}

func TestRestart(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	c := newCluster(ctx, t)
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
	c.gone(ctx, a)
	c.finish(ctx, b)
	c.nothingLeft(ctx)
}
