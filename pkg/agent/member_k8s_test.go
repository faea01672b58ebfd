// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/agent/nodestatus"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/resource"
)

// TestLabelMember: with the rights of its own account an agent labels its own Node, and changes nothing else of any Node but its status,
// and answers CalicoNodeStatuses for no other; the controllers change only the status of Nodes and Namespaces.
func TestLabelMember(t *testing.T) {
	p := kubernetes.Control(t)
	p.Kubectl("apply", "-f", kubernetes.Manifest(t))
	p.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: tenant, labels: {keep: me}}}")
	p.Apply("{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {keep: me}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n2, labels: {projectcalico.org/etcd: member}}}\n")
	connect := func(account, node string) *kube.Client {
		file := p.KubeconfigAs("system:serviceaccount:kube-system:"+account, "authentication.kubernetes.io/node-name="+node) // as the token of a pod there says
		client, err := kube.New(kube.Config{Kubeconfig: file, Name: account})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	labels := func(node string) string { return p.Kubectl("get", "node", node, "-o", "jsonpath={.metadata.labels}") }
	labelled := func(node, want string) {
		t.Helper()
		eventually.Within(t, kubernetes.Patience, "the labels of "+node, func() error {
			if got := labels(node); got != want {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	replaced, stop := context.WithCancel(t.Context())
	defer stop()
	for node, want := range map[string]string{"n1": `{"keep":"me","projectcalico.org/etcd":"member"}`, "n2": ""} {
		c := Config{Node: node, Kubernetes: Kubernetes{Members: []string{"n1"}}}
		t.Cleanup(c.keepNode(t.Context(), connect("calico-node", node), testEnv(t), stop))
		labelled(node, want)
	}
	// The label is removed or added by others; the Node is deleted and recreated.
	p.Kubectl("label", "node", "n1", memberLabel+"-")
	labelled("n1", `{"keep":"me","projectcalico.org/etcd":"member"}`)
	p.Kubectl("label", "node", "n2", memberLabel+"=member")
	labelled("n2", "")
	if replaced.Err() != nil {
		t.Error("the Node was taken for another one")
	}
	p.Kubectl("delete", "node", "n1")
	p.Apply("{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {keep: me}}}")
	labelled("n1", `{"keep":"me","projectcalico.org/etcd":"member"}`)
	eventually.True(t, "the agent to be stopped, for a certificate of the other Node", func() bool { return replaced.Err() != nil })
	type object = map[string]any
	label := func(name string, value any) object { return object{"metadata": object{"labels": object{name: value}}} }
	absent := object{"apiVersion": "v1", "kind": "Node", "name": "absent", "uid": "absent"}
	for _, refused := range []struct {
		name, account, node string
		patch               object
	}{
		{"another's label", "calico-node", "n2", label(memberLabel, "member")},
		{"another's status", "calico-node", "n2", object{"status": object{"conditions": []object{{"type": "Ready", "status": "False"}}}}},
		{"a label of the control plane", "calico-node", "n1", label("node-role.kubernetes.io/control-plane", "")},
		{"a label is lost", "calico-node", "n1", label("keep", nil)},
		{"an annotation", "calico-node", "n1", object{"metadata": object{"annotations": object{"a": "b"}}}},
		{"a label by the controllers", "calico-controllers", "n1", label(memberLabel, nil)},
		{"an owner", "calico-node", "n1", object{"metadata": object{"ownerReferences": []object{absent}}}},
		{"a finalizer by the controllers", "calico-controllers", "n1", object{"metadata": object{"finalizers": []string{"a.b/c"}}}},
		{"a label of a namespace", "calico-controllers", "tenant", label("pod-security.kubernetes.io/enforce", "privileged")},
		{"a label of a namespace is lost", "calico-controllers", "tenant", label("keep", nil)},
		{"an annotation of a namespace", "calico-controllers", "tenant", object{"metadata": object{"annotations": object{"a": "b"}}}},
		{"a finalizer of a namespace", "calico-controllers", "tenant", object{"metadata": object{"finalizers": []string{"a.b/c"}}}},
		{"an owner of a namespace", "calico-controllers", "tenant", object{"metadata": object{"ownerReferences": []object{absent}}}},
	} {
		client := connect(refused.account, "n1")
		eventually.Within(t, kubernetes.Patience, refused.name+" to be refused", func() error { // once the API server has read the policy
			patch := kube.PatchStatus[corev1.Node]
			if refused.node == "tenant" {
				patch = kube.PatchStatus[corev1.Namespace]
			}
			err := patch(t.Context(), client, "", refused.node, refused.patch)
			if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'calico-metadata'") {
				return fmt.Errorf("patched, or refused for another reason: %w", err)
			}
			return nil
		})
	}
	// An agent answers what is asked about its own node; it can't make another's question one about its own.
	questions := kube.Custom{Group: "projectcalico.org", Version: "v3", Kind: "CalicoNodeStatus", Resource: "caliconodestatuses"}
	agent := connect("calico-node", "n1")
	for _, node := range []string{"n1", "n2"} {
		p.Apply(fmt.Sprintf("{apiVersion: projectcalico.org/v3, kind: CalicoNodeStatus, metadata: {name: about-%s}, spec: {node: %[1]s, classes: [BGP]}}", node))
	}
	for _, patch := range []object{{"status": object{"lastUpdated": "x"}}, {"spec": object{"node": "n1"}, "status": object{"lastUpdated": "x"}}} {
		eventually.Within(t, kubernetes.Patience, "an answer about another node to be refused", func() error {
			err := agent.PatchCustomStatus(t.Context(), questions, "", "about-n2", patch)
			if err == nil || !strings.Contains(err.Error(), "calico-node may change its own Node alone") {
				return fmt.Errorf("answered, or refused for another reason: %w", err)
			}
			return nil
		})
	}
	answers := nodestatus.Kubernetes{Client: agent}
	for _, s := range []resource.NodeStatus{{LastUpdated: "1", BGP: &resource.BGPStatus{PeersV4: make([]resource.PeerStatus, resource.MostInNodeStatus)}}, {LastUpdated: "2", BGP: &resource.BGPStatus{}}} {
		if err := answers.SetStatus(t.Context(), "about-n1", s); err != nil {
			t.Error(err)
		}
	}
	if got := p.Kubectl("get", "caliconodestatuses", "-o", "jsonpath={range .items[*]}{.spec.node} {.status.lastUpdated} {.status.bgp.peersV4};{end}"); got != "n1 2 ;n2  ;" {
		t.Errorf("answers: %s", got)
	}
	long := resource.NodeStatus{BGP: &resource.BGPStatus{PeersV4: make([]resource.PeerStatus, resource.MostInNodeStatus+1)}}
	if err := answers.SetStatus(t.Context(), "about-n1", long); err == nil || !strings.Contains(err.Error(), "must have at most 2000 items") {
		t.Errorf("an answer that is too long: %v", err)
	}
	for _, account := range []string{"calico-node", "calico-controllers"} {
		if err := kube.SetNetwork(t.Context(), connect(account, "n1"), "n1", account == "calico-controllers"); err != nil {
			t.Errorf("%s: %v", account, err)
		}
	}
	condition := object{"status": object{"conditions": []object{{"type": "Limit", "status": "True"}}}}
	if err := kube.PatchStatus[corev1.Namespace](t.Context(), connect("calico-controllers", "n1"), "", "tenant", condition); err != nil {
		t.Errorf("the condition of a namespace: %v", err)
	}
}
