// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package availability

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// TestReal: with the real API and etcd, and more nodes than one request covers.
func TestReal(t *testing.T) {
	p, e := kubernetes.Control(t), etcd.New(t)
	client, err := kube.New(kube.Config{Kubeconfig: p.Kubeconfig, Name: "calico-controllers"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	const nodes = batch + 3
	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	objects := ""
	for i := range nodes {
		objects += fmt.Sprintf("---\n{apiVersion: v1, kind: Node, metadata: {name: %s}}\n", name(i))
	}
	p.Apply(objects)
	for i := range nodes {
		if err := kube.SetNetwork(t.Context(), client, name(i), false); err != nil {
			t.Fatal(err)
		}
		e.Put(model.LastStatusKey{Host: name(i)}, model.Status{Time: time.Now()})
		if i < nodes-2 {
			e.Put(model.StatusKey{Host: name(i)}, model.Status{Time: time.Now()})
		}
	}
	k := New(Config{Etcd: e.Store, API: Kubernetes{client, "default"}, Problems: problems.New(slog.New(slog.DiscardHandler)), Logger: slog.New(slog.DiscardHandler)})
	k.nodes, k.absent = map[string]kube.Network{}, map[string]bool{}
	done := make(chan error, 1)
	go func() { done <- k.cfg.API.Watch(t.Context(), k.seen, k.gone) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	down := func() (names []string) {
		for i := range nodes {
			n, err := kube.Get[corev1.Node](t.Context(), client, "", name(i))
			if err != nil {
				t.Fatal(err)
			}
			if kube.NetworkOf(n).Unavailable {
				names = append(names, n.Name)
			}
		}
		return names
	}
	expect := func(when string, want ...string) {
		t.Helper()
		eventually.True(t, fmt.Sprintf("%s: nodes without a network %v", when, want), func() bool {
			if err := k.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(down()) == fmt.Sprint(want)
		})
	}
	never := func(when string) {
		t.Helper()
		for range 3 {
			if err := k.look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if names := down(); len(names) > 0 {
			t.Errorf("%s: nodes without a network %v", when, names)
		}
	}
	eventually.True(t, "all nodes are known", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.nodes) == nodes
	})
	never("without a DaemonSet")
	p.Apply(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: calico-node, namespace: default, finalizers: [test.test/wait]}, spec: {selector: {matchLabels: {a: b}},
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: none}]}}}}`)
	p.Kubectl("delete", "daemonset/calico-node", "--wait=false")
	never("while the DaemonSet is being deleted")
	p.Kubectl("patch", "daemonset/calico-node", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	p.Apply(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: calico-node, namespace: default}, spec: {selector: {matchLabels: {a: b}},
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: none}]}}}}`)
	expect("two agents are gone", name(nodes-2), name(nodes-1))
	e.Put(model.StatusKey{Host: name(nodes - 1)}, model.Status{Time: time.Now()})
	expect("one is back", name(nodes-2))
}
