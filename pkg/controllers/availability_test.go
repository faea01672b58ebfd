// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestAvailability: the leader marks a node whose agent is gone, and unmarks it when it is back.
func TestAvailability(t *testing.T) {
	w := newWorld(t)
	w.plane.Apply("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
	w.plane.Apply(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: calico-node, namespace: kube-system}, spec: {selector: {matchLabels: {a: b}},
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: none}]}}}}`)
	status := model.Status{Time: time.Now(), FirstUpdate: true}
	w.Put(model.LastStatusKey{Host: "n1"}, status)
	if err := kube.SetNetwork(t.Context(), w.api, "n1", false); err != nil {
		t.Fatal(err)
	}
	defer w.run("a")()
	expect := func(what string, unavailable bool) {
		t.Helper()
		eventually.True(t, what, func() bool {
			n, err := kube.Get[corev1.Node](t.Context(), w.api, "", "n1")
			return err == nil && kube.NetworkOf(n).Unavailable == unavailable
		})
	}
	expect("the agent is gone", true)
	w.Put(model.StatusKey{Host: "n1"}, status)
	expect("the agent is back", false)
}
