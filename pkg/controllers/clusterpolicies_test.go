// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
)

const toNodes = `{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: no-nodes},
  spec: {tier: %s, priority: 7, subject: {namespaces: {}}, egress: [{name: nodes, action: Deny, to: [{nodes: {matchLabels: {role: secret}}}]}]}}
`

// address sets the address of a node.
func (w *world) address(node, addr string) {
	w.Helper()
	w.plane.Kubectl("patch", "node/"+node, "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, addr))
}

// nets waits until a policy's rules apply to exactly these networks; with none, until the policy is gone.
func (w *world) nets(tier string, want ...string) {
	w.Helper()
	k := model.PolicyKey{Tier: tier, Policy: "kcnp.no-nodes"}
	eventually.Within(w, kubernetes.Patience, k.Path(), func() error {
		p, there := w.Get(k).(model.Policy)
		var have []string
		for _, r := range p.Outbound {
			for _, n := range r.Match.DstNets {
				have = append(have, n.String())
			}
		}
		slices.Sort(have)
		if there != (len(want) > 0) || !slices.Equal(have, want) {
			return fmt.Errorf("there: %v, to %v, want %v", there, have, want)
		}
		return nil
	})
}

// A ClusterNetworkPolicy is in its tier, with the current addresses of the nodes that it names.
func TestClusterPolicies(t *testing.T) {
	w := newWorld(t)
	w.plane.DefineClusterNetworkPolicies()
	w.plane.Apply(`{apiVersion: v1, kind: Node, metadata: {name: a, labels: {role: secret}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b}}
`)
	w.address("a", "192.0.2.1")
	w.address("b", "192.0.2.2")
	w.plane.Apply(fmt.Sprintf(toNodes, "Admin"))
	stale, foreign := model.PolicyKey{Tier: "kube-admin", Policy: "kcnp.gone"}, model.PolicyKey{Tier: "kube-admin", Policy: "mine"}
	for _, k := range []model.Key{stale, foreign} {
		w.Put(k, model.Policy{Selector: "all()"})
	}
	w.run("one")
	w.nets("kube-admin", "192.0.2.1/32")
	w.holds(stale, nil)
	w.plane.Kubectl("label", "node/b", "role=secret")
	w.nets("kube-admin", "192.0.2.1/32", "192.0.2.2/32")
	w.address("a", "192.0.2.9")
	w.nets("kube-admin", "192.0.2.2/32", "192.0.2.9/32")
	w.plane.Kubectl("delete", "node/b")
	w.nets("kube-admin", "192.0.2.9/32")

	// A node is also reached at the addresses of its tunnels.
	vxlan, ipip := model.HostConfigKey{Host: "a", Name: "IPv4VXLANTunnelAddr"}, model.HostConfigKey{Host: "a", Name: "IpInIpTunnelAddr"}
	w.Put(vxlan, model.Text("10.244.64.0"))
	w.nets("kube-admin", "10.244.64.0/32", "192.0.2.9/32")
	w.Put(vxlan, model.Text("10.244.64.1"))
	w.Put(ipip, model.Text("10.244.64.2"))
	w.Put(model.HostConfigKey{Host: "a", Name: "IPv6VXLANTunnelAddr"}, model.Text("fd00::1"))
	w.Put(model.HostConfigKey{Host: "c", Name: "IpInIpTunnelAddr"}, model.Text("10.244.64.3"))
	w.nets("kube-admin", "10.244.64.1/32", "10.244.64.2/32", "192.0.2.9/32", "fd00::1/128")
	w.Remove(ipip)
	w.nets("kube-admin", "10.244.64.1/32", "192.0.2.9/32", "fd00::1/128")

	// Its status says whether it is acted upon, and what isn't.
	condition := func(want string) {
		t.Helper()
		w.plane.Eventually("condition "+want, func(out string) error {
			if !strings.HasPrefix(out, want) {
				return fmt.Errorf("condition: %s", out)
			}
			return nil
		}, "get", "clusternetworkpolicy/no-nodes", "-o", "jsonpath={range .status.conditions[?(@.type==\"Accepted\")]}{.observedGeneration} {.status} {.reason} {.message}{end}")
	}
	condition("1 True Accepted ")
	w.plane.Kubectl("patch", "clusternetworkpolicy/no-nodes", "--type=json", "-p", `[{"op": "add", "path": "/spec/egress/-", "value": {"name": "named", "action": "Accept", "to": [{"domainNames": ["example.com"]}]}}]`)
	condition("2 False InvalidForCalico ClusterNetworkPolicy no-nodes: spec.egress[1].to[0]: domainNames are not supported")

	// A policy moves to another tier.
	w.plane.Kubectl("delete", "clusternetworkpolicy/no-nodes")
	w.nets("kube-admin")
	w.plane.Apply(fmt.Sprintf(toNodes, "Baseline"))
	w.nets("kube-baseline", "10.244.64.1/32", "192.0.2.9/32", "fd00::1/128")
	if w.Get(foreign) == nil {
		t.Error("a policy that isn't Kubernetes' is gone")
	}
}

// What can't be translated of an object is an event on it, once a process leads.
func TestWarning(t *testing.T) {
	w := newWorld(t)
	w.plane.Apply(shop)
	w.run("one")
	w.plane.Eventually("the pod has a Warning", func(out string) error {
		if !strings.Contains(out, "InvalidForCalico") || !strings.Contains(out, "projectcalico.org/") {
			return fmt.Errorf("events: %s", out)
		}
		return nil
	}, "get", "events", "-n", "shop", "--field-selector=type=Warning,involvedObject.name=web", "-o", "jsonpath={.items[*].reason} {.items[*].message}")
}

// former defines the kinds that ClusterNetworkPolicy has replaced, as users of them may.
const former = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]ss.policy.networking.k8s.io, annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-sigs/network-policy-api/pull/30"}},
  spec: {group: policy.networking.k8s.io, scope: Cluster, names: {kind: %[1]s, plural: %[2]ss, singular: %[2]s, listKind: %[1]sList},
    versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`

// An AdminNetworkPolicy has no effect, and an event says so.
func TestFormer(t *testing.T) {
	w := newWorld(t)
	for kind, resource := range map[string]string{"AdminNetworkPolicy": "adminnetworkpolicie", "BaselineAdminNetworkPolicy": "baselineadminnetworkpolicie"} {
		w.plane.Apply(strings.ReplaceAll(fmt.Sprintf(former, kind, resource), "singular: "+resource, "singular: "+strings.ToLower(kind)))
		w.plane.Kubectl("wait", "--for=condition=Established", "crd/"+resource+"s.policy.networking.k8s.io")
		w.plane.Apply(fmt.Sprintf(`{apiVersion: policy.networking.k8s.io/v1alpha1, kind: %s, metadata: {name: default}, spec: {priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}`, kind))
	}
	w.run("one")
	for _, kind := range []string{"AdminNetworkPolicy", "BaselineAdminNetworkPolicy"} {
		w.plane.Eventually("a Warning on it", func(out string) error {
			if !strings.Contains(out, "write it as a ClusterNetworkPolicy") {
				return fmt.Errorf("events: %s", out)
			}
			return nil
		}, "get", "events", "-A", "--field-selector=type=Warning,involvedObject.kind="+kind, "-o", "jsonpath={.items[*].message}")
	}
}
