// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/kubepolicy"
)

// TestLaterCluster: fields of a later version let nothing through that the rest would.
func TestLaterCluster(t *testing.T) {
	const spec = `{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}, {action: Pass, from: [{namespaces: {}}]}]}`
	const accept, deny, pass = ` {"action":"allow","src_selector":"has(calico/k8s_ns)"}`, ` {"action":"deny","src_selector":"has(calico/k8s_ns)"}`, ` {"action":"next-tier","src_selector":"has(calico/k8s_ns)"}`
	for _, row := range []struct{ name, unknown, want, problems string }{
		{"outside of the spec", "metadata.x status status.x", accept + deny + pass, ""},
		{"in a rule that accepts", "spec.ingress[0].x spec.ingress[0].y", deny + pass, "spec.ingress[0].x"},
		{"in a peer", "spec.ingress[0].from[0].x", deny + pass, "spec.ingress[0].from[0].x"},
		{"in a rule that denies", "spec.ingress[1].x", accept + ` {"action":"deny"}` + pass, "spec.ingress[1].x"},
		{"in a rule that passes", "spec.ingress[2].protocols[0].x", accept + deny + ` {"action":"deny"}`, "spec.ingress[2].protocols[0].x"},
		{"in a rule of another number", "spec.ingress[10].x spec.ingress[11].x", accept + deny + pass, ""},
		{"in the spec", "spec.x", deny, "spec.x"},
		{"in the subject", "spec.subject.namespaces.x", deny, "spec.subject.namespaces.x"},
		{"beside the spec", "x", deny, "x"},
		{"in the spec and a rule that passes", "spec.ingress[2].x spec.x", deny + ` {"action":"deny"}`, "spec.x spec.ingress[2].x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cnp := &v1alpha2.ClusterNetworkPolicy{Spec: *decode[v1alpha2.ClusterNetworkPolicySpec](t, spec)}
			cnp.Name = "guard"
			key, p, problems := kubepolicy.ClusterPolicy(cnp, nil, strings.Fields(row.unknown)...)
			check(t, key.Tier, p, problems, "ClusterNetworkPolicy guard", "kube-admin selector: has(calico/k8s_ns); inbound"+row.want, row.problems)
		})
	}
}

// TestLater: the same of a NetworkPolicy, which allows nothing by what it doesn't know.
func TestLater(t *testing.T) {
	const spec = `{podSelector: {matchLabels: {a: x}}, policyTypes: [Ingress, Egress], ingress: [{}, {from: [{podSelector: {}}]}], egress: [{}]}`
	const all, own = ` {"action":"allow"}`, ` {"action":"allow","src_selector":"calico/k8s_ns == "shop""}`
	for _, row := range []struct{ name, unknown, in, out, problems string }{
		{"outside of the spec", "metadata.x status status.x", all + own, all, ""},
		{"in a rule", "spec.ingress[0].x", own, all, "spec.ingress[0].x"},
		{"in a peer", "spec.ingress[1].from[0].ipBlock.x", all, all, "spec.ingress[1].from[0].ipBlock.x"},
		{"in a rule of the other direction", "spec.egress[0].x", all + own, "", "spec.egress[0].x"},
		{"in the selector", "spec.podSelector.x", "", "", "spec.podSelector.x"},
		{"in the spec", "spec.x", "", "", "spec.x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			np := &networkingv1.NetworkPolicy{Spec: *decode[networkingv1.NetworkPolicySpec](t, spec)}
			np.Namespace, np.Name = "shop", "guard"
			key, p, problems := kubepolicy.Policy(np, strings.Fields(row.unknown)...)
			want := `default selector: calico/k8s_ns == "shop" && a == "x"; inbound` + row.in + "; outbound" + row.out
			check(t, key.Tier, p, problems, "NetworkPolicy shop/guard", want, row.problems)
		})
	}
}
