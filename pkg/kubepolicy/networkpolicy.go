// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// policyOrder is the order of all NetworkPolicies: they only allow, so none needs to come before another.
const policyOrder = 1000

// Policy converts a NetworkPolicy to a policy in PolicyTier. It decides in the directions of its types and allows what
// its rules say. A peer, port or rule that can't be expressed allows nothing. If podSelector can't be expressed, the
// policy applies to all pods that the rest of it selects, and allows them nothing; it also allows nothing if a type is
// unknown.
//
// unknown has the sorted paths of fields of the object that its type doesn't have. A part with such a field can't be
// expressed.
func Policy(np *networkingv1.NetworkPolicy, unknown ...string) (model.PolicyKey, model.Policy, []Problem) {
	r := &report{object: "NetworkPolicy " + np.Namespace + "/" + np.Name, unknown: unknown}
	order := float64(policyOrder)
	p := model.Policy{Order: &order}
	own := inNamespace(np.Namespace)
	const isolates = "so the policy isolates all that the rest of the selector picks"
	terms, ok := r.pods("spec.podSelector", &np.Spec.PodSelector, isolates)
	p.Selector, ok = r.subject("spec.podSelector", ok, own, terms, isolates)
	if r.laterSpec(isolates) {
		ok = false
	}
	in, out := r.types(&np.Spec)
	p.Types = directions(in || !out, out)

	c := policyCompiler{report: r, own: own}
	var parts []part
	for i := range np.Spec.Ingress {
		if rule := &np.Spec.Ingress[i]; ok && in {
			parts = append(parts, c.rule(model.Inbound, fmt.Sprintf("spec.ingress[%d]", i), "from", rule.From, rule.Ports))
		}
	}
	for i := range np.Spec.Egress {
		if rule := &np.Spec.Egress[i]; ok && out {
			parts = append(parts, c.rule(model.Outbound, fmt.Sprintf("spec.egress[%d]", i), "to", rule.To, rule.Ports))
		}
	}
	return PolicyKey(np.Namespace, np.Name), r.fit(p, parts), r.all()
}

// subject joins the terms that select what a policy applies to. If there are too many it leaves them out, and ok is
// false.
func (r *report) subject(field string, ok bool, base string, terms []string, effect string) (string, bool) {
	text := and(append([]string{base}, terms...)...)
	if _, err := selector.Parse(text); err != nil {
		r.add(field, err.Error()+", "+effect, "pick by fewer labels and values")
		return base, false
	}
	return text, ok
}

// directions returns the types in the model's form, where nil means both.
func directions(in, out bool) []model.Direction {
	switch {
	case in && out:
		return nil
	case in:
		return []model.Direction{model.Inbound}
	}
	return []model.Direction{model.Outbound}
}

// types returns the directions in which the policy decides. An unknown type could mean either.
func (r *report) types(spec *networkingv1.NetworkPolicySpec) (in, out bool) {
	if len(spec.PolicyTypes) == 0 {
		return true, len(spec.Egress) > 0
	}
	for i, t := range spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			in = true
		case networkingv1.PolicyTypeEgress:
			out = true
		default:
			r.add(fmt.Sprintf("spec.policyTypes[%d]", i), fmt.Sprintf("%.64q is unknown, so both directions are isolated", string(t)), "write Ingress or Egress, or upgrade")
			in, out = true, true
		}
	}
	return in, out
}

// nothing is the effect of an inexpressible entry in a list of what is allowed.
const nothing = "so it allows nothing"

// policyCompiler makes the rules of a NetworkPolicy.
type policyCompiler struct {
	*report
	own string // selects all pods of its namespace
}

// rule returns a rule for each combination of peer and protocol.
func (c policyCompiler) rule(d model.Direction, field, peersField string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) part {
	if c.laterRule(field, nothing) {
		return part{field: field, direction: d}
	}
	ends := []model.Rule{{Action: model.ActionAllow}}
	if len(peers) > 0 {
		ends = nil
		for i := range peers {
			if end, ok := c.peer(d, fmt.Sprintf("%s.%s[%d]", field, peersField, i), &peers[i]); ok {
				ends = append(ends, end)
			}
		}
	}
	return part{field: field, direction: d, rules: product(ends, c.ports(field, ports))}
}

func (c policyCompiler) peer(d model.Direction, field string, peer *networkingv1.NetworkPolicyPeer) (rule model.Rule, ok bool) {
	rule.Action = model.ActionAllow
	switch {
	case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
		c.add(field, "ipBlock and a selector in one peer, "+nothing, "make two peers of it")
		return rule, false
	case peer.IPBlock != nil:
		return rule, c.block(&rule, d, field+".ipBlock", peer.IPBlock)
	case peer.PodSelector == nil && peer.NamespaceSelector == nil:
		c.add(field, "it says nothing that is known, "+nothing, "write podSelector, namespaceSelector or ipBlock, or upgrade; for anybody leave the list of peers out")
		return rule, false
	}
	terms, known := []string{c.own}, true
	if s := peer.NamespaceSelector; s != nil {
		terms, known = c.namespaces(field+".namespaceSelector", s, nothing)
		terms = append(knownPods(s), terms...)
	}
	if s := peer.PodSelector; s != nil {
		more, ok := c.pods(field+".podSelector", s, nothing)
		terms, known = append(terms, more...), known && ok
	}
	pick(&rule, d, terms)
	return rule, known
}

func (c policyCompiler) block(rule *model.Rule, d model.Direction, field string, b *networkingv1.IPBlock) bool {
	cidr, err := parseCIDR(b.CIDR)
	if err != nil {
		c.add(field+".cidr", err.Error()+", "+nothing, "write a block like 10.0.0.0/8 or fd00::/8")
		return false
	}
	within(&rule.Match, d, cidr)
	for i, s := range b.Except {
		except, err := parseCIDR(s)
		if err == nil && except.Addr().Is4() != cidr.Addr().Is4() {
			err = fmt.Errorf("%s is of the other family than %s", except, cidr)
		}
		if err != nil {
			c.add(fmt.Sprintf("%s.except[%d]", field, i), err.Error()+", so the block allows nothing", "write a block inside cidr")
			return false
		}
		within(&rule.Not, d, except)
	}
	return true
}

func (c policyCompiler) ports(field string, ports []networkingv1.NetworkPolicyPort) []portMatch {
	if len(ports) == 0 {
		return []portMatch{{}}
	}
	var all portMatches
	for i := range ports {
		protocol, port, err := policyPort(&ports[i])
		if err != nil {
			c.add(fmt.Sprintf("%s.ports[%d]", field, i), err.Error()+", "+nothing, "correct it, or upgrade where its meaning is that of a later version")
			continue
		}
		all.add(protocol, port)
	}
	return all
}

// policyPort returns a nil port for all ports of the protocol.
func policyPort(p *networkingv1.NetworkPolicyPort) (model.Protocol, *model.Port, error) {
	protocol := model.ProtocolTCP
	if p.Protocol != nil {
		var err error
		if protocol, err = parseProtocol(string(*p.Protocol)); err != nil {
			return 0, nil, err
		}
	}
	switch {
	case p.Port == nil && p.EndPort == nil:
		return protocol, nil, nil
	case p.Port == nil:
		return 0, nil, fmt.Errorf("endPort %d without port", *p.EndPort)
	case p.Port.StrVal != "" || p.Port.Type != 0:
		if p.EndPort != nil {
			return 0, nil, fmt.Errorf("endPort %d with a port's name, %.64q", *p.EndPort, p.Port.StrVal)
		}
		port, err := namedPort(p.Port.StrVal)
		return protocol, &port, err
	}
	end := p.Port.IntVal
	if p.EndPort != nil {
		end = *p.EndPort
	}
	port, err := portRange(p.Port.IntVal, end)
	return protocol, &port, err
}
