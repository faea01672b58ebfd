// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package pods_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/agent/pods"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
)

// run starts a keeper for node one, which ends with the test.
func run(t *testing.T, kubeconfig string) *pods.Cache {
	t.Helper()
	client, err := kube.New(kube.Config{Kubeconfig: kubeconfig, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	k := pods.New(pods.Config{Node: "one", API: pods.Kubernetes{Client: client}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		client.Close()
	})
	return k
}

func TestKubernetes(t *testing.T) {
	p := kubernetes.Control(t)
	p.Apply(`{apiVersion: v1, kind: Node, metadata: {name: one}, spec: {podCIDR: 10.244.3.0/24, podCIDRs: [10.244.3.0/24, "fd00:3::/64"]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {cni.projectcalico.org/ipv4pools: namespaces, other: x}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}, annotations: {cni.projectcalico.org/hwAddr: pods}}
spec: {nodeName: one, containers: [{name: a, image: none, ports: [{name: http, containerPort: 80}, {containerPort: 81}]}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: elsewhere, namespace: shop}, spec: {nodeName: two, containers: [{name: a, image: none}]}}
`)
	uid := func() string { return p.Kubectl("get", "pod", "web", "-n", "shop", "-o", "jsonpath={.metadata.uid}") }
	k := run(t, p.Kubeconfig)
	request := gate.PodRequest{Namespace: "shop", Name: "web", UID: uid()}
	var got gate.Pod
	ask := func() (err error) { got, err = k.Pod(t.Context(), request); return err }
	until := func(what string, ok func() error) {
		t.Helper()
		eventually.Within(t, kubernetes.Patience, what, ok)
	}
	until("the pod", ask)
	want := gate.Pod{
		UID: request.UID, Labels: map[string]string{"app": "web"}, Ports: []model.EndpointPort{{Name: "http", Protocol: model.ProtocolTCP, Port: 80}},
		Annotations: map[string]string{"cni.projectcalico.org/ipv4pools": "namespaces", "cni.projectcalico.org/hwAddr": "pods"},
		PodCIDRs:    []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParsePrefix("fd00:3::/64")},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}), cmpopts.IgnoreFields(gate.Pod{}, "ServiceAccount")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Another node's, and none.
	if _, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "elsewhere"}); err == nil || !strings.Contains(err.Error(), `is to run on node "two"`) {
		t.Errorf("a pod of another node: %v", err)
	}
	if _, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "none"}); !errors.Is(err, gate.ErrNoPod) {
		t.Errorf("no pod: %v", err)
	}
	// A change, and a pod recreated under its name.
	p.Kubectl("label", "pod", "web", "-n", "shop", "app=shop", "--overwrite")
	until("the label", func() error {
		if err := ask(); err != nil || got.Labels["app"] == "shop" {
			return err
		}
		return fmt.Errorf("labels %v", got.Labels)
	})
	p.Kubectl("delete", "pod", "web", "-n", "shop", "--force", "--grace-period=0")
	p.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {nodeName: one, containers: [{name: a, image: none}]}}`)
	if err := ask(); !errors.Is(err, gate.ErrNoPod) {
		t.Errorf("the pod before: %v", err)
	}
	request.UID = uid()
	if err := ask(); err != nil || got.UID != request.UID || len(got.Labels) != 0 {
		t.Errorf("the pod made anew: %+v, %v", got, err)
	}
	// While the API is away, what is known is; what isn't can't be asked for.
	p.KillAPI()
	if err := ask(); err != nil || got.UID != request.UID {
		t.Errorf("while the API is away: %v", err)
	}
	if _, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "none"}); err == nil || errors.Is(err, gate.ErrNoPod) {
		t.Errorf("while the API is away: %v", err)
	}
	p.StartAPI()
	p.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: late, namespace: shop}, spec: {nodeName: one, containers: [{name: a, image: none}]}}`)
	request = gate.PodRequest{Namespace: "shop", Name: "late"}
	until("a pod of after the API's return", ask)
	// Who may read nothing says so.
	denied := run(t, p.KubeconfigAs("system:serviceaccount:shop:default"))
	until("a refusal", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := denied.Pod(ctx, gate.PodRequest{}); err == nil || !strings.Contains(err.Error(), "forbidden") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
}
