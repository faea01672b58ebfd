// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package availability

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
)

const (
	node = `{apiVersion: v1, kind: Node, metadata: {name: n1}}`
	down = `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"True","reason":"CalicoIsDown","message":"down"}]}}`
)

// TestCondition sets a Node's condition in the real API.
func TestCondition(t *testing.T) {
	p := kubernetes.Control(t)
	client, err := kube.New(kube.Config{Kubeconfig: p.Kubeconfig, Name: "calico-node"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	var unready atomic.Value
	unready.Store("")
	served := make(chan struct{})
	k := New(Config{Node: "n1", API: Kubernetes{client}, Served: served, Unready: func() string { return unready.Load().(string) }, Problems: problems.New(slog.New(slog.DiscardHandler)), Logger: slog.New(slog.DiscardHandler)})
	done := make(chan error, 1)
	go func() { done <- k.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	condition := func() string {
		return p.Kubectl("get", "node", "n1", "-o", `jsonpath={range .status.conditions[?(@.type=="NetworkUnavailable")]}{.status} {.reason}{end}`)
	}
	expect := func(when, want string) {
		t.Helper()
		eventually.True(t, when+": condition "+want, func() bool { return condition() == want })
	}
	setDown := func() { p.Kubectl("patch", "node", "n1", "--subresource=status", "--type=strategic", "-p", down) }

	p.Apply(node)
	if got := condition(); got != "" {
		t.Errorf("before the agent serves: %s", got)
	}
	close(served)
	expect("the agent serves", "False CalicoIsUp")
	setDown()
	expect("somebody has set it", "False CalicoIsUp")
	unready.Store("etcd is away")
	setDown()
	expect("the agent doesn't serve", "True CalicoIsDown")
	unready.Store("")
	expect("it serves again", "False CalicoIsUp")
	p.Kubectl("delete", "node", "n1")
	p.Apply(node)
	expect("the Node is made anew", "False CalicoIsUp")
	p.KillAPI()
	p.StartAPI()
	setDown()
	expect("the API was away", "False CalicoIsUp")
}
