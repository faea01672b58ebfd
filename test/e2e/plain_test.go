// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// gone checks that nothing of a pod is left, and how often containerd says that it took its network away.
func (c *cluster) gone(ctx context.Context, p *pod, times int) {
	c.t.Helper()
	if e, ok := c.endpoint(ctx, p); ok {
		c.t.Errorf("etcd still has the endpoint of %s: %+v", p.name, e)
	}
	said := fmt.Sprintf(`TearDown network for sandbox \"%s\" successfully`, p.sandbox)
	if n := strings.Count(c.log(), said); n != times {
		c.t.Errorf("containerd's log says %d times that it took the network of %s away, want %d", n, p.name, times)
	}
}

// finish stops and removes a pod. Each takes its network away: first with the namespace, then without.
func (c *cluster) finish(ctx context.Context, p *pod) {
	c.t.Helper()
	if err := c.stopSandbox(ctx, p); err != nil {
		c.t.Error(err)
	}
	if err := c.removeSandbox(ctx, p); err != nil {
		c.t.Error(err)
	}
	c.gone(ctx, p, 2)
}

// removeAll stops and removes every sandbox that the runtime knows of, as a kubelet does with those it doesn't want.
func (c *cluster) removeAll(ctx context.Context) {
	c.t.Helper()
	all, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range all.Items {
		p := &pod{name: s.Metadata.Name, sandbox: s.Id}
		c.dropHalfResult(p)
		if err := c.stopSandbox(ctx, p); err != nil {
			c.t.Error(err)
		}
		if err := c.removeSandbox(ctx, p); err != nil {
			c.t.Error(err)
		}
	}
}

// dropHalfResult removes what libcni keeps of a call's result where containerd was killed while it was
// written: containerd would never stop that sandbox, nor call a plugin for it.
func (c *cluster) dropHalfResult(p *pod) {
	c.t.Helper()
	files, err := filepath.Glob("/var/lib/cni/results/*-" + p.sandbox + "-*")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err == nil && !json.Valid(text) {
			c.t.Logf("%s has half a result", p.name)
			err = os.Remove(name)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

func TestPlain(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	c := newCluster(ctx, t, network{})
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
		if diff := cmp.Diff(p.addrs, e.Addrs(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
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
	c.gone(ctx, b, 1)
	if diff := cmp.Diff([]string{"ADD", "DEL"}, calls(t, c.bin, b.sandbox)); diff != "" {
		t.Errorf("calls for b (-want +got):\n%s", diff)
	}
	c.nothingLeft(ctx)
}

// TestReplaced is what a kubelet does when a sandbox died: a new one of the same pod is made before the old is removed.
func TestReplaced(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	c := newCluster(ctx, t, network{})
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
