// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/controllers"
	"github.com/calico-go/calico/pkg/controllers/collector"
	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
)

// nobody implements Known and knows nothing: everything is asked for.
type nobody struct{}

func (nobody) Pod(garbage.Pod) []string { return nil }
func (nobody) Node(string) bool         { return false }

// TestNodes: a Node's host has its labels and uid.
func TestNodes(t *testing.T) {
	w := newWorld(t)
	w.run("one")
	w.plane.Apply("{apiVersion: v1, kind: Node, metadata: {name: a, labels: {rack: one}}}")
	node, err := kube.Get[corev1.Node](t.Context(), w.api, "", "a")
	if err != nil {
		t.Fatal(err)
	}
	want := model.HostMetadata{Labels: maps.Clone(node.Labels), Kubernetes: model.KubernetesNode{Name: "a", UID: string(node.UID)}}
	w.holds(model.HostMetadataKey{Host: "a"}, want)
	w.Put(model.HostMetadataKey{Host: "a"}, model.HostMetadata{})
	w.holds(model.HostMetadataKey{Host: "a"}, want)
	w.overwritten("default", "Node/a")
}

// TestCollect uses the real API, and a clock that the test sets.
func TestCollect(t *testing.T) {
	w := newWorld(t)
	stop := w.run("one")
	w.plane.Apply("{apiVersion: v1, kind: Node, metadata: {name: a}}")
	w.plane.Apply(shop)
	pool := netip.MustParsePrefix("10.0.0.0/24")
	w.Put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, IPAM: true})
	entry := model.HostMetadataKey{Host: "a"}
	w.Until("the host is there", func() bool { return w.Get(entry) != nil })
	stop()
	w.enter("web", w.uid("shop", "web"))
	w.enter("gone", "0")
	w.plane.Apply("{apiVersion: v1, kind: Pod, metadata: {name: job, namespace: shop}, spec: {containers: [{name: a, image: none}]}}")
	w.enter("job", w.uid("shop", "job"))
	phase := func(p corev1.PodPhase) {
		t.Helper()
		w.plane.Kubectl("patch", "-n", "shop", "pod/job", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":{"phase":%q}}`, p))
	}
	phase(corev1.PodRunning)

	now := time.Now()
	c := collector.New(collector.Config{Etcd: w.Store, API: controllers.Live{Client: w.api}, Known: nobody{}, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)})
	pass := func(candidates, released, hosts int) {
		t.Helper()
		r, err := c.Pass(t.Context())
		if err != nil || r.Candidates != candidates || r.Released != released || r.Hosts != hosts {
			t.Errorf("%+v, %v; want %d candidates, %d released, %d hosts", r, err, candidates, released, hosts)
		}
		w.Check()
	}
	pass(1, 0, 0)
	phase(corev1.PodSucceeded)
	pass(2, 0, 0)
	var list strings.Builder
	var cfg controllers.Config
	env, err := controllers.Daemon(&cfg).Prepare("", []string{"-etcd-endpoints", w.Addr(), "-kubeconfig", w.plane.Kubeconfig}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = controllers.ListGarbage(t.Context(), cfg, env, &list)
	for _, name := range []string{"gone", "job"} {
		if text := fmt.Sprintf("handle net.%[1]s.eth0: pod shop/%[1]s hasn't been gone, or finished, for long enough", name); err != nil || !strings.Contains(list.String(), text) {
			t.Errorf("ListGarbage: %v\n%s\nwant %s", err, &list, text)
		}
	}
	now = now.Add(garbage.PodGrace)
	pass(2, 2, 0)
	if w.Get(key("shop", "job")) != nil {
		t.Error("the endpoint of a finished pod is there")
	}
	pass(0, 0, 0)
	w.plane.Kubectl("delete", "node/a")
	w.plane.Kubectl("delete", "-n", "shop", "pod/web", "--force", "--grace-period=0")
	pass(1, 0, 0)
	now = now.Add(garbage.NodeGrace)
	pass(1, 1, 1)
	if w.Get(entry) != nil || w.Get(key("shop", "web")) != nil {
		t.Error("the host is there")
	}
}

// enter does what the plugin does for a pod on host a.
func (w *world) enter(name, uid string) {
	w.Helper()
	k := key("shop", name)
	request := ipam.Request{
		Host: "a", Handle: "net." + name + ".eth0", IPv4: true, Now: time.Now(),
		Attributes: map[string]string{"node": "a", "network": "net", "orchestrator": "k8s", "workload": k.Workload, "namespace": "shop", "pod": name},
	}
	_, err := w.Store.Transact(context.Background(), ipam.FirstRead(request), func(v *model.View) (model.Change, error) {
		p := ipam.NewPlan(v)
		choice, err := p.Assign(request)
		if err != nil {
			return model.Change{}, err
		}
		change, spec := p.Change(), written(uid)
		spec.ContainerID, spec.Name = name, "cali"+name
		spec.IPv4Nets = []netip.Prefix{netip.PrefixFrom(choice.Addrs[0].Addr, 32)}
		change.Puts = append(change.Puts, model.Put{Key: k, Value: spec})
		return change, nil
	})
	if err != nil {
		w.Fatal(err)
	}
}
