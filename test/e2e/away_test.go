// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAgentAway: a pod never runs unprotected. Without the agent there is no new one, and what was begun is undone.
func TestAgentAway(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	c := newCluster(ctx, t, network{fields: map[string]any{"policy_setup_timeout_seconds": 15}})
	a := c.must(ctx, "a")
	if err := c.node.Agent().Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.runSandbox(ctx, "b"); err == nil || !strings.Contains(err.Error(), "calico-node") {
		t.Errorf("new pod without an agent: error %v; want one that says to look at calico-node", err)
	}
	c.reachable(ctx, a)
	c.finish(ctx, a) // needs no agent

	if err := c.node.Agent().Start(ctx); err != nil {
		t.Fatal(err)
	}
	b := c.must(ctx, "b")
	c.reachable(ctx, b)
	c.finish(ctx, b)
	c.nothingLeft(ctx)
}

// TestEtcdAway: what runs goes on, and what is stopped is asked for again until etcd has heard of it.
func TestEtcdAway(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	c := newCluster(ctx, t, network{fields: map[string]any{"datastore_timeout_seconds": 12}})
	a := c.must(ctx, "a")
	e, _ := c.endpoint(ctx, a)
	if err := c.lab.Members().Kill(1); err != nil {
		t.Fatal(err)
	}
	c.reachable(ctx, a)
	if _, err := c.runSandbox(ctx, "b"); err == nil || !strings.Contains(err.Error(), "etcd is unavailable") {
		t.Errorf("new pod without etcd: error %v; want one that says so", err)
	}
	if err := c.stopSandbox(ctx, a); err == nil || !strings.Contains(err.Error(), "etcd is unavailable") {
		t.Errorf("stop without etcd: error %v; want one that says so", err)
	}
	if links := c.state(ctx).Links; slices.Contains(links, e.Name) {
		t.Errorf("the interface of a is still there: %v", links)
	}
	if err := c.lab.Members().Start(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := c.lab.Members().Wait(ctx); err != nil {
		t.Fatal(err)
	}
	c.removeAll(ctx)
	c.nothingLeft(ctx)
}
