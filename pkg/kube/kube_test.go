// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
)

func client(t *testing.T, cfg kube.Config) *kube.Client {
	t.Helper()
	cfg.Name = "test"
	c, err := kube.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func configMap(name, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"text": text}}
}

// TestErrors: callers can tell failures of requests apart. Only the API itself can say that an object is absent.
func TestErrors(t *testing.T) {
	p, ctx := kubernetes.Control(t), t.Context()
	c := client(t, kube.Config{Kubeconfig: p.Kubeconfig})
	made, err := kube.Create(ctx, c, configMap("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.Create(ctx, c, configMap("a", "1")); !errors.Is(err, os.ErrExist) {
		t.Errorf("made twice: %v", err)
	}
	made.Data["text"] = "2"
	if _, err := kube.Update(ctx, c, made); err != nil {
		t.Error(err)
	}
	if _, err := kube.Update(ctx, c, made); !errors.Is(err, kube.ErrChanged) {
		t.Errorf("an older one is written: %v", err)
	}
	if _, err := kube.Get[corev1.ConfigMap](ctx, c, "default", "b"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that is absent: %v", err)
	}
	if err := kube.Delete[corev1.ConfigMap](ctx, c, "default", "a", "another"); !errors.Is(err, kube.ErrChanged) {
		t.Errorf("another of the name is deleted: %v", err)
	}
	if err := kube.Delete[corev1.ConfigMap](ctx, c, "default", "a", string(made.UID)); err != nil {
		t.Error(err)
	}
	// Objects of a kind that isn't served don't count as absent.
	if _, err := kube.Get[v1alpha2.ClusterNetworkPolicy](ctx, c, "", "x"); !errors.Is(err, kube.ErrNotServed) || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a kind that isn't served: %v", err)
	}
	// Nor do they if something other than the API answers.
	other := httptest.NewServer(http.HandlerFunc(http.NotFound))
	defer other.Close()
	if _, err := kube.Get[corev1.Pod](ctx, client(t, kube.Config{APIRoot: other.URL}), "default", "x"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("what isn't an API: %v", err)
	}
	nobody := client(t, kube.Config{Kubeconfig: p.KubeconfigAs("system:serviceaccount:default:default")})
	if _, err := kube.List[corev1.Pod](ctx, nobody, kube.Select{}); !errors.Is(err, kube.ErrDenied) || !strings.Contains(err.Error(), `list resource "pods"`) {
		t.Errorf("without the right: %v", err)
	}
}

// mirror is what a watch has reported.
type mirror struct {
	mu     sync.Mutex
	have   map[string]string
	synced int
}

func (m *mirror) watch(ctx context.Context, c *kube.Client) error {
	keep := func(o *corev1.ConfigMap) [2]string { return [2]string{o.Name, o.Data["text"]} }
	return kube.Watch(ctx, c, kube.Select{Namespace: "default"}, keep, kube.Handler[[2]string]{
		Set:     func(o [2]string) { m.change(func() { m.have[o[0]] = o[1] }) },
		Deleted: func(_, name string) { m.change(func() { delete(m.have, name) }) },
		Synced:  func() { m.change(func() { m.synced++ }) },
	})
}

func (m *mirror) change(how func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	how()
}

// holds waits until exactly this was reported, after a complete list.
func (m *mirror) holds(t *testing.T, want ...string) {
	t.Helper()
	eventually.Within(t, kubernetes.Patience, "the watch has told all", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		var have []string
		for name, text := range m.have {
			have = append(have, name+"="+text)
		}
		slices.Sort(have)
		if !slices.Equal(have, want) || m.synced == 0 {
			return fmt.Errorf("%v, after %d lists", have, m.synced)
		}
		return nil
	})
}

// TestWatch: a watch reports everything that exists, and changes, also while the API is away.
func TestWatch(t *testing.T) {
	p, ctx := kubernetes.Control(t), t.Context()
	c := client(t, kube.Config{Kubeconfig: p.Kubeconfig})
	for i := range 3 {
		if _, err := kube.Create(ctx, c, configMap(fmt.Sprint("a", i), "1")); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	m, done := &mirror{have: map[string]string{}}, make(chan error, 1)
	go func() { done <- m.watch(ctx, c) }()
	m.holds(t, "a0=1", "a1=1", "a2=1")
	p.Kubectl("patch", "configmap/a1", "-p", `{"data":{"text":"2"}}`)
	p.Kubectl("delete", "configmap/a2")
	m.holds(t, "a0=1", "a1=2")
	p.KillAPI()
	p.StartAPI()
	p.Kubectl("delete", "configmap/a0")
	p.Kubectl("create", "configmap", "a3", "--from-literal=text=3")
	m.holds(t, "a1=2", "a3=3")
	p.KillAPI()
	stop()
	if err := <-done; err != nil {
		t.Errorf("a watch that is ended: %v", err)
	}
}

// TestKnown: this version knows all fields of the API's protobuf of a policy, so protobuf can be used.
func TestKnown(t *testing.T) {
	p := kubernetes.Control(t)
	p.Apply(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, namespace: default, labels: {a: b}, annotations: {c: d}}, spec: {podSelector: {matchLabels: {a: b}},
  policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}, namespaceSelector: {matchExpressions: [{key: a, operator: Exists}]}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}],
  ports: [{port: 80, endPort: 90}, {port: http, protocol: UDP}, {}]}], egress: [{}]}}`)
	c := client(t, kube.Config{Kubeconfig: p.Kubeconfig})
	ctx, stop := context.WithCancel(t.Context())
	known := 0
	keep := func(_ *networkingv1.NetworkPolicy, raw kube.Raw) bool { return raw.Object == nil }
	err := kube.WatchRaw(ctx, c, kube.Select{}, keep, kube.Handler[bool]{Synced: func() { p.Kubectl("label", "-n", "default", "networkpolicy/p", "e=f") }, Set: func(is bool) {
		if is {
			known++
		}
		if !is || known == 2 {
			stop()
		}
	}})
	if err != nil || known != 2 {
		t.Errorf("%v; %d events are of what is known, want 2", err, known)
	}
	if _, raw, err := kube.GetRaw[networkingv1.NetworkPolicy](t.Context(), c, "default", "p"); err != nil || raw.Object != nil {
		t.Errorf("read again: %v, %v", raw, err)
	}
}
