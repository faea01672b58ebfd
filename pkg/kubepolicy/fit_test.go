// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

func podPeer(label string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: "x"}}}
}

func peers(n int) []networkingv1.NetworkPolicyPeer {
	out := make([]networkingv1.NetworkPolicyPeer, n)
	for i := range out {
		out[i] = podPeer(fmt.Sprintf("l%d", i))
	}
	return out
}

// What the model has no room for is left out, and nothing else.
func TestPolicyOverBounds(t *testing.T) {
	names := make([]networkingv1.NetworkPolicyPort, 300)
	for i := range names {
		name := intstr.FromString(fmt.Sprintf("p%d", i))
		names[i].Port = &name
	}
	many := func(n, each int) []networkingv1.NetworkPolicyIngressRule {
		rules := make([]networkingv1.NetworkPolicyIngressRule, n)
		for i := range rules {
			for j := range each {
				rules[i].From = append(rules[i].From, podPeer(fmt.Sprintf("l%d-%d", i, j)))
			}
		}
		return rules
	}
	long := make([]string, 5000)
	for i := range long {
		long[i] = fmt.Sprintf("a-value-of-some-length-%d", i)
	}
	ok := networkingv1.NetworkPolicyIngressRule{From: peers(1)}
	for _, row := range []struct {
		name    string
		rules   []networkingv1.NetworkPolicyIngressRule
		inbound int
		field   string
		reason  string
	}{
		{"one rule of too many peers", []networkingv1.NetworkPolicyIngressRule{{From: peers(1001)}, ok}, 1, "spec.ingress[0]", "1001 different selectors"},
		{"one rule of too many names", []networkingv1.NetworkPolicyIngressRule{ok, {Ports: names}}, 1, "spec.ingress[1]", "300 combinations of names"},
		{"a selector that is too long", []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: long}},
		}}}}, ok}, 1, "spec.ingress[0]", "so the rule lets nothing through"},
		{"rules that are too many together", many(300, 4), 1000, "spec.ingress[250]", "so this rule and the 49 after it let nothing through"},
		{"a huge policy", append(many(20, 100), make([]networkingv1.NetworkPolicyIngressRule, 60000)...), 1000, "spec.ingress[10]", "at most"},
	} {
		t.Run(row.name, func(t *testing.T) {
			np := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: row.rules}}
			np.Namespace, np.Name = "shop", "web"
			_, p, problems := kubepolicy.Policy(np)
			roundTrip(t, p)
			if len(p.Inbound) != row.inbound {
				t.Errorf("%d rules, want %d", len(p.Inbound), row.inbound)
			}
			if len(problems) != 1 || problems[0].Field != row.field || !strings.Contains(problems[0].Reason, row.reason) {
				t.Errorf("problems %v, want one of %s, about %q", problems, row.field, row.reason)
			}
		})
	}
}

func TestSubjectOverBounds(t *testing.T) {
	np := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, 1)}}
	np.Namespace, np.Name = "shop", "web"
	for i := range 5000 {
		np.Spec.PodSelector.MatchExpressions = append(np.Spec.PodSelector.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprintf("label-%d", i), Operator: metav1.LabelSelectorOpExists})
	}
	_, p, problems := kubepolicy.Policy(np)
	check(t, "default", p, problems, "NetworkPolicy shop/web", `default selector: calico/k8s_ns == "shop"; inbound`, "spec.podSelector")
}

// A rule that there is no room for denies all, where it wouldn't accept.
func TestClusterPolicyOverBounds(t *testing.T) {
	rule := func(action v1alpha2.ClusterNetworkPolicyRuleAction, n int) v1alpha2.ClusterNetworkPolicyEgressRule {
		r := v1alpha2.ClusterNetworkPolicyEgressRule{Action: action}
		for i := range n {
			r.To = append(r.To, v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprintf("l%d", i): "x"}}})
		}
		return r
	}
	for _, row := range []struct {
		action v1alpha2.ClusterNetworkPolicyRuleAction
		want   []model.Action
	}{
		{v1alpha2.ClusterNetworkPolicyRuleActionAccept, []model.Action{model.ActionAllow}},
		{v1alpha2.ClusterNetworkPolicyRuleActionDeny, []model.Action{model.ActionDeny, model.ActionAllow}},
		{v1alpha2.ClusterNetworkPolicyRuleActionPass, []model.Action{model.ActionDeny, model.ActionAllow}},
	} {
		cnp := &v1alpha2.ClusterNetworkPolicy{Spec: v1alpha2.ClusterNetworkPolicySpec{
			Tier: v1alpha2.AdminTier, Subject: v1alpha2.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
			Egress: []v1alpha2.ClusterNetworkPolicyEgressRule{rule(row.action, 1001), rule(v1alpha2.ClusterNetworkPolicyRuleActionAccept, 1)},
		}}
		_, p, problems := kubepolicy.ClusterPolicy(cnp, nil)
		roundTrip(t, p)
		var got []model.Action
		for _, r := range p.Outbound {
			got = append(got, r.Action)
		}
		if fmt.Sprint(got) != fmt.Sprint(row.want) || p.Outbound[0].Action == model.ActionDeny && p.Outbound[0].Match.HasDstSelector {
			t.Errorf("%s: rules %+v, want %s, a denial of all", row.action, p.Outbound, row.want)
		}
		if len(problems) != 1 || problems[0].Field != "spec.egress[0]" {
			t.Errorf("%s: problems %v, want one of spec.egress[0]", row.action, problems)
		}
	}
}

// What is told is bounded, whatever there is to tell.
func TestProblemsAreFew(t *testing.T) {
	np := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: make([]networkingv1.NetworkPolicyPeer, 30000)}}}}
	np.Namespace, np.Name = "shop", strings.Repeat("w", 253)
	_, p, problems := kubepolicy.Policy(np)
	if len(p.Inbound) != 0 || len(problems) != 11 || problems[10].Reason != "29990 more problems" {
		t.Errorf("%d rules, problems %v: want none, and 11 of which the last counts the others", len(p.Inbound), problems)
	}
	for _, problem := range problems {
		if s := problem.String(); len(s) > 1024 {
			t.Errorf("%d bytes, more than an event takes: %s", len(s), s)
		}
	}
}
