// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	v := new(T)
	if err := yaml.Unmarshal([]byte(text), v); err != nil {
		t.Fatal(err)
	}
	return v
}

// stored is what puts write, by path.
func stored(t *testing.T, puts []model.Put) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range puts {
		data, err := model.FormatValue(p.Value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.ParseValue(p.Key, data); err != nil {
			t.Errorf("%s: parse %s: %v", p.Key.Path(), data, err)
		}
		out[strings.TrimPrefix(p.Key.Path(), "/calico/v1/policy/profile/")] = string(data)
	}
	return out
}

func TestNamespace(t *testing.T) {
	ns := decode[corev1.Namespace](t, "metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop, projectcalico.org/x: w}}")
	want := map[string]string{
		"k8s_ns.shop/rules":  `{"inbound_rules":[{"action":"allow"}],"outbound_rules":[{"action":"allow"}]}`,
		"k8s_ns.shop/tags":   `["k8s_ns.shop"]`,
		"k8s_ns.shop/labels": `{"k8s_ns/label/kubernetes.io/metadata.name":"shop","k8s_ns/label/projectcalico.org/x":"w"}`,
	}
	if d := cmp.Diff(want, stored(t, kubepolicy.Namespace(ns))); d != "" {
		t.Error(d)
	}
}

func TestServiceAccount(t *testing.T) {
	sa := decode[corev1.ServiceAccount](t, "metadata: {namespace: shop, name: till, labels: {role: x}}")
	if d := cmp.Diff(map[string]string{"ksa.shop.till/labels": `{"k8s_sa/label/role":"x"}`}, stored(t, kubepolicy.ServiceAccount(sa))); d != "" {
		t.Error(d)
	}
	// A profile of which no key is there denies all.
	sa.Labels = nil
	if d := cmp.Diff(map[string]string{"ksa.shop.till/labels": `{}`}, stored(t, kubepolicy.ServiceAccount(sa))); d != "" {
		t.Errorf("without labels: %s", d)
	}
}

func TestPod(t *testing.T) {
	for _, row := range []struct {
		name, pod string
		want      kubepolicy.Workload
		problems  string
	}{
		{"nothing but a name", `metadata: {namespace: shop, name: a}`,
			kubepolicy.Workload{Labels: map[string]string{"calico/k8s_ns": "shop"}, Profiles: []string{"k8s_ns.shop"}}, ""},
		{"labels less reserved ones, ours last", `
metadata: {namespace: shop, name: a, labels: {app: web, example.com/x: "", calico/k8s_ns: bank, projectcalico.org/serviceaccount: root, pcns.x: z, pcsa.x: z, k8s_ns.bank: "", k8s_nsx: z}}
spec: {serviceAccountName: till}`,
			kubepolicy.Workload{
				Labels:   map[string]string{"app": "web", "example.com/x": "", "k8s_nsx": "z", "calico/k8s_ns": "shop", "projectcalico.org/serviceaccount": "till"},
				Profiles: []string{"k8s_ns.shop", "ksa.shop.till"},
			}, "metadata.labels metadata.labels metadata.labels metadata.labels metadata.labels"},
		{"ports of containers and of init containers that go on", `
metadata: {namespace: shop, name: a}
spec:
  initContainers:
  - {name: once, ports: [{name: no, containerPort: 1}]}
  - {name: on-failure, restartPolicy: OnFailure, ports: [{name: no, containerPort: 1}]}
  - {name: sidecar, restartPolicy: Always, ports: [{name: web, containerPort: 15001}]}
  containers:
  - {name: a, ports: [{name: web, containerPort: 80, protocol: TCP}, {containerPort: 81}]}
  - {name: b, ports: [{name: web, containerPort: 8080}, {name: dns, protocol: UDP, containerPort: 53}, {name: sig, protocol: SCTP, containerPort: 65535}]}`,
			kubepolicy.Workload{
				Labels: map[string]string{"calico/k8s_ns": "shop"}, Profiles: []string{"k8s_ns.shop"},
				Ports: []model.EndpointPort{port("web", model.ProtocolTCP, 15001), port("web", model.ProtocolTCP, 80), port("web", model.ProtocolTCP, 8080), port("dns", model.ProtocolUDP, 53), port("sig", model.ProtocolSCTP, 65535)},
			}, ""},
		{"ports that are none", `
metadata: {namespace: shop, name: a}
spec: {containers: [{ports: [{name: a, containerPort: 0}, {name: b, containerPort: 65536}, {name: c, containerPort: 1, protocol: QUIC}, {name: "80", containerPort: 80}, {name: ok, containerPort: 80}]}]}`,
			kubepolicy.Workload{
				Labels: map[string]string{"calico/k8s_ns": "shop"}, Profiles: []string{"k8s_ns.shop"},
				Ports: []model.EndpointPort{port("ok", model.ProtocolTCP, 80)},
			}, "spec.containers[0].ports[0] spec.containers[0].ports[1] spec.containers[0].ports[2] spec.containers[0].ports[3]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, problems := kubepolicy.Pod(decode[corev1.Pod](t, row.pod))
			if d := cmp.Diff(row.want, w); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			var fields []string
			for _, p := range problems {
				fields = append(fields, p.Field)
			}
			if d := cmp.Diff(row.problems, strings.Join(fields, " ")); d != "" {
				t.Errorf("problems, -want +got:\n%s", d)
			}
		})
	}
}

func TestNodeOf(t *testing.T) {
	node := decode[corev1.Node](t, `
metadata: {name: n1, labels: {rack: a}}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: "2001:db8::1"}, {type: ExternalIP, address: 192.0.2.1}, {type: Hostname, address: n1}, {type: InternalIP, address: "fe80::1%eth0"}, {type: ExternalIP, address: none}]}`)
	want := kubepolicy.Node{Labels: map[string]string{"rack": "a"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	have, problems := kubepolicy.NodeOf(node)
	if d := cmp.Diff(want, have, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	if len(problems) != 2 || problems[0].Field != "status.addresses[4]" || problems[1].Field != "status.addresses[5]" {
		t.Errorf("problems: %v", problems)
	}
}

func port(name string, protocol model.Protocol, number uint16) model.EndpointPort {
	return model.EndpointPort{Name: name, Protocol: protocol, Port: number}
}
