// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/model"
)

// Node has what identifies nodes as peers.
type Node struct {
	Labels map[string]string
	Addrs  []netip.Addr // for ClusterPolicy including those of its tunnels
}

// ClusterPolicy converts a ClusterNetworkPolicy. A direction without rules is not one of its types. A rule with a part
// that can't be expressed matches nothing if it accepts, else denies everything, as the API demands; one with an
// unknown action denies. If the subject can't be expressed, only its denials are kept, for all pods that the rest of
// the subject selects; the same if the tier is unknown, in the first tier. A policy without a subject, or with two,
// applies to no pod.
//
// unknown has the sorted paths of fields of the object that its type doesn't have. A part with such a field can't be
// expressed.
func ClusterPolicy(cnp *v1alpha2.ClusterNetworkPolicy, nodes []Node, unknown ...string) (model.PolicyKey, model.Policy, []Problem) {
	c := clusterCompiler{report: &report{object: "ClusterNetworkPolicy " + cnp.Name, unknown: unknown}, nodes: nodes}
	order := float64(cnp.Spec.Priority)
	p := model.Policy{Order: &order}
	tier, known := AdminTier, true
	switch cnp.Spec.Tier {
	case v1alpha2.AdminTier:
	case v1alpha2.BaselineTier:
		tier = BaselineTier
	default:
		c.add("spec.tier", fmt.Sprintf("%.64q is unknown, so only its denials hold, in tier Admin", string(cnp.Spec.Tier)), "write Admin or Baseline, or upgrade")
		known = false
	}
	if p := cnp.Spec.Priority; p < 0 || p > 1000 {
		c.add("spec.priority", fmt.Sprintf("%d is none, and is taken as it is", p), "write 0 to 1000")
	}
	subject, ok := c.subjectOf(&cnp.Spec.Subject)
	later := c.laterSpec("so only the policy's denials are left")
	c.denials = !known || !ok || later
	if p.Selector = subject; len(cnp.Spec.Ingress)+len(cnp.Spec.Egress) == 0 {
		p.Selector = nobody
	}
	if p.Selector != nobody {
		p.Types = directions(len(cnp.Spec.Ingress) > 0, len(cnp.Spec.Egress) > 0)
		p = c.fit(p, c.parts(&cnp.Spec))
	}
	return ClusterPolicyKey(tier, cnp.Name), p, c.all()
}

// clusterCompiler makes the rules of a ClusterNetworkPolicy.
type clusterCompiler struct {
	*report
	nodes   []Node
	denials bool // make only rules that deny
	// unsure says that the subject also selects pods whose namespace is not known yet. Only denials may apply to those.
	unsure bool
}

func (c *clusterCompiler) subjectOf(s *v1alpha2.ClusterNetworkPolicySubject) (text string, ok bool) {
	const field = "spec.subject"
	if (s.Namespaces == nil) == (s.Pods == nil) {
		c.add(field, "it says not one of namespaces and pods, so the policy applies to nobody", "write one of them, or upgrade where it is another that a later version has")
		return nobody, false
	}
	c.unsure = excludes(namespacesOf(s.Namespaces, s.Pods))
	const effect = "so only the policy's denials are left, for all that the rest of the selector picks"
	terms, ok := c.selected(field, s.Namespaces, s.Pods, effect)
	return c.subject(field, ok, anyPod, terms, effect)
}

// namespacesOf returns the selector of namespaces of a subject or peer that has one of the two.
func namespacesOf(namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod) *metav1.LabelSelector {
	if namespaces != nil {
		return namespaces
	}
	return &pods.NamespaceSelector
}

// selected returns the terms, besides anyPod, that select pods by whichever of the two is set.
func (c *clusterCompiler) selected(field string, namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod, effect string) (terms []string, ok bool) {
	if namespaces != nil {
		return c.namespaces(field+".namespaces", namespaces, effect)
	}
	terms, known := c.namespaces(field+".pods.namespaceSelector", &pods.NamespaceSelector, effect)
	more, ok := c.pods(field+".pods.podSelector", &pods.PodSelector, effect)
	return append(terms, more...), known && ok
}

func (c *clusterCompiler) parts(spec *v1alpha2.ClusterNetworkPolicySpec) []part {
	var parts []part
	for i, r := range spec.Ingress {
		peers := make([]v1alpha2.ClusterNetworkPolicyEgressPeer, len(r.From))
		for i, from := range r.From {
			peers[i] = v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: from.Namespaces, Pods: from.Pods}
		}
		parts = append(parts, c.rule(clusterRule{model.Inbound, fmt.Sprintf("spec.ingress[%d]", i), r.Action, peers, r.Protocols}))
	}
	for i, r := range spec.Egress {
		parts = append(parts, c.rule(clusterRule{model.Outbound, fmt.Sprintf("spec.egress[%d]", i), r.Action, r.To, r.Protocols}))
	}
	return parts
}

// clusterRule has the common fields of ingress and egress rules. Ingress peers are egress peers without the kinds that
// only egress has.
type clusterRule struct {
	direction model.Direction
	field     string
	action    v1alpha2.ClusterNetworkPolicyRuleAction
	peers     []v1alpha2.ClusterNetworkPolicyEgressPeer
	protocols []v1alpha2.ClusterNetworkPolicyProtocol
}

// passes reports whether the rule allows packets, or lets them skip rules that deny.
func (r clusterRule) passes() bool {
	return r.action == v1alpha2.ClusterNetworkPolicyRuleActionAccept || r.action == v1alpha2.ClusterNetworkPolicyRuleActionPass
}

// rule returns a rule for each combination of peer and protocol.
func (c *clusterCompiler) rule(r clusterRule) part {
	p := part{field: r.field, direction: r.direction}
	action := model.ActionDeny
	switch r.action {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept:
		action = model.ActionAllow
	case v1alpha2.ClusterNetworkPolicyRuleActionPass:
		action = model.ActionNextTier
	case v1alpha2.ClusterNetworkPolicyRuleActionDeny:
	default:
		c.add(r.field+".action", fmt.Sprintf("%.64q is unknown, so the rule denies", string(r.action)), "write Accept, Deny or Pass, or upgrade")
	}
	closed := "so the rule accepts nothing"
	if action != model.ActionAllow {
		closed = "so the rule denies all"
		p.instead = []model.Rule{{Action: model.ActionDeny}}
	}
	if c.laterRule(r.field, closed) {
		p.rules = p.instead
		return p
	}
	ends, peersKnown := c.peers(r, closed)
	ports, portsKnown := c.protocols(r, closed)
	if !peersKnown || !portsKnown {
		p.rules = p.instead
		return p
	}
	if c.denials && action != model.ActionDeny {
		return part{field: r.field, direction: r.direction}
	}
	for i := range ends {
		ends[i].Action = action
		if r.passes() && c.unsure {
			pick(&ends[i], opposite(r.direction), []string{anyPod, knownNamespace})
		}
	}
	p.rules = product(ends, ports)
	return p
}
