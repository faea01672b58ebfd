// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/kubepolicy"
)

// slowCluster decides as slow does, with the tiers of ClusterNetworkPolicy around it. What is quoted is from
// sigs.k8s.io/network-policy-api/apis/v1alpha2.
type slowCluster struct {
	slow
	cluster []*v1alpha2.ClusterNetworkPolicy
	nodes   []kubepolicy.Node
}

func (s slowCluster) allows(f flow) bool {
	src, dst := s.pod(f.src), s.pod(f.dst)
	if src != nil && src.iface != "" && !s.decides(src, f.dst, f, v1alpha2Egress, func() (bool, bool) { return s.isolates(src, false), s.leaves(src, f) }) {
		return false
	}
	return dst == nil || dst.iface == "" || s.decides(dst, f.src, f, v1alpha2Ingress, func() (bool, bool) { return s.isolates(dst, true), s.enters(dst, f) })
}

// isolates says whether a NetworkPolicy selects the pod for the direction.
func (s slow) isolates(p *placed, ingress bool) bool {
	for _, np := range s.policies {
		if s.selects(np, p) && has(np, map[bool]networkingv1.PolicyType{true: "Ingress", false: "Egress"}[ingress]) {
			return true
		}
	}
	return false
}

// decides: "Policy tiers are evaluated in the following order: Admin tier, NetworkPolicy tier, Baseline tier [...] If a given connection
// wasn't allowed or denied by any of the tiers, the default kubernetes policy is applied, which says that all pods can communicate
// with each other." "v1.NetworkPolicy always makes a final decision for selected pods."
func (s slowCluster) decides(p *placed, peer netip.Addr, f flow, rules rulesOf, policies func() (isolated, allowed bool)) bool {
	if action := s.tier(v1alpha2.AdminTier, p, peer, f, rules); action != "Pass" {
		return action == "Accept"
	}
	if isolated, allowed := policies(); isolated {
		return allowed
	}
	return s.tier(v1alpha2.BaselineTier, p, peer, f, rules) != "Deny"
}

// slowRule is a rule of either direction.
type slowRule struct {
	action    v1alpha2.ClusterNetworkPolicyRuleAction
	peers     []v1alpha2.ClusterNetworkPolicyEgressPeer
	protocols []v1alpha2.ClusterNetworkPolicyProtocol
}

type rulesOf func(*v1alpha2.ClusterNetworkPolicy) []slowRule

func v1alpha2Egress(cnp *v1alpha2.ClusterNetworkPolicy) (out []slowRule) {
	for _, r := range cnp.Spec.Egress {
		out = append(out, slowRule{r.Action, r.To, r.Protocols})
	}
	return out
}

func v1alpha2Ingress(cnp *v1alpha2.ClusterNetworkPolicy) (out []slowRule) {
	for _, r := range cnp.Spec.Ingress {
		rule := slowRule{r.Action, nil, r.Protocols}
		for _, p := range r.From {
			rule.peers = append(rule.peers, v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		out = append(out, rule)
	}
	return out
}

// tier: "Policies with lower priority values have higher precedence, and are checked before policies with higher priority values in
// the same tier." "A rule that appears at the top of the [...] rules would take the highest precedence." "Pass: Skips all
// further ClusterNetworkPolicy rules in the current tier for the selected traffic, and passes evaluation to the next tier."
func (s slowCluster) tier(tier v1alpha2.Tier, p *placed, peer netip.Addr, f flow, rules rulesOf) v1alpha2.ClusterNetworkPolicyRuleAction {
	sorted := slices.SortedFunc(slices.Values(s.cluster), func(a, b *v1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, cnp := range sorted {
		if cnp.Spec.Tier != tier || !s.isSubject(&cnp.Spec.Subject, p) {
			continue
		}
		for _, r := range rules(cnp) {
			if action, matched := s.rule(r, peer, f); matched {
				return action
			}
		}
	}
	return "Pass"
}

// isSubject: "Exactly one field must be set."
func (s slowCluster) isSubject(subject *v1alpha2.ClusterNetworkPolicySubject, p *placed) bool {
	if (subject.Namespaces == nil) == (subject.Pods == nil) {
		return false
	}
	return s.picks(subject.Namespaces, subject.Pods, p)
}

// picks: "Namespaces is used to select pods via namespace selectors. [...] Pods is used to select pods via namespace AND pod selectors."
func (s slowCluster) picks(namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod, p *placed) bool {
	labels := s.namespaces[p.Namespace].Labels
	if namespaces != nil {
		return matches(namespaces, labels)
	}
	return matches(&pods.NamespaceSelector, labels) && matches(&pods.PodSelector, p.Labels)
}

// rule: "For "Accept" rules, "fail closed" means: "treat the rule as matching no traffic". For "Deny" and "Pass" rules, "fail closed"
// means: "treat the rule as a 'Deny all' rule"."
func (s slowCluster) rule(r slowRule, peer netip.Addr, f flow) (action v1alpha2.ClusterNetworkPolicyRuleAction, matched bool) {
	closed := len(r.peers) == 0
	isPeer, isPort := false, len(r.protocols) == 0
	for _, p := range r.peers {
		is, known := s.isPeer(&p, peer)
		closed, isPeer = closed || !known, isPeer || is
	}
	for _, p := range r.protocols {
		is, known := s.isProtocol(&p, f)
		closed, isPort = closed || !known, isPort || is
		for _, peer := range r.peers {
			// "You can't use this in a rule that targets resources without named ports (e.g. Nodes or Networks)."
			closed = closed || p.DestinationNamedPort != "" && peer.Namespaces == nil && peer.Pods == nil
		}
	}
	if closed {
		return "Deny", r.action != "Accept"
	}
	return r.action, isPeer && isPort
}

// isPeer: "Exactly one of the fields must be set for a given peer [...] If an implementation sees no fields are set then it can infer that the
// deployed CRD is of an incompatible version with an unknown field."
func (s slowCluster) isPeer(p *v1alpha2.ClusterNetworkPolicyEgressPeer, a netip.Addr) (is, known bool) {
	set := 0
	if p.Namespaces != nil || p.Pods != nil {
		set++
		pod := s.pod(a)
		is = pod != nil && s.picks(p.Namespaces, p.Pods, pod)
	}
	if p.Namespaces != nil && p.Pods != nil {
		set++
	}
	if p.Networks != nil {
		set++
		is = slices.ContainsFunc(p.Networks, func(n v1alpha2.CIDR) bool { return slowBlock(string(n), a) })
	}
	if p.Nodes != nil {
		set++
		is = slices.ContainsFunc(s.nodes, func(n kubepolicy.Node) bool { return matches(p.Nodes, n.Labels) && slices.Contains(n.Addrs, a) })
	}
	return is, set == 1
}

func (s slowCluster) isProtocol(p *v1alpha2.ClusterNetworkPolicyProtocol, f flow) (is, known bool) {
	switch {
	case p.TCP != nil:
		return slowPort(p.TCP.DestinationPort, f, corev1.ProtocolTCP)
	case p.UDP != nil:
		return slowPort(p.UDP.DestinationPort, f, corev1.ProtocolUDP)
	case p.SCTP != nil:
		return slowPort(p.SCTP.DestinationPort, f, corev1.ProtocolSCTP)
	case p.DestinationNamedPort != "":
		for name, protocol := range slowProtocols {
			is = is || protocol == f.protocol && s.named(p.DestinationNamedPort, name, f)
		}
		return is, true
	}
	return false, false
}

// slowPort: "You must specify either Port or Range."
func slowPort(p *v1alpha2.Port, f flow, protocol corev1.Protocol) (is, known bool) {
	if p == nil || (p.Number != 0) == (p.Range != nil) {
		return false, false
	}
	is = f.protocol == slowProtocols[protocol]
	if p.Range != nil {
		return is && p.Range.Start <= int32(f.port) && int32(f.port) <= p.Range.End, true
	}
	return is && p.Number == int32(f.port), true
}
