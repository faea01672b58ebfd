// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-go/calico/pkg/model"
)

// slow decides as the API's own text says, sentence by sentence, by walking over everything. What is quoted is from
// k8s.io/api/networking/v1. What the API has no meaning for matches nothing.
type slow struct {
	*world
	policies []*networkingv1.NetworkPolicy
}

// allows says whether the pods of h1 at the ends of a flow let it pass.
func (s slow) allows(f flow) bool {
	src, dst := s.pod(f.src), s.pod(f.dst)
	return (src == nil || src.iface == "" || s.leaves(src, f)) && (dst == nil || dst.iface == "" || s.enters(dst, f))
}

// leaves: "Outgoing traffic is allowed if there are no NetworkPolicies selecting the pod [...], OR if the traffic matches at least one
// egress rule across all of the NetworkPolicy objects whose podSelector matches the pod."
func (s slow) leaves(p *placed, f flow) bool {
	isolated := false
	for _, np := range s.policies {
		if !s.selects(np, p) || !has(np, networkingv1.PolicyTypeEgress) {
			continue
		}
		isolated = true
		for _, r := range np.Spec.Egress {
			if s.anyPeer(np, r.To, f.dst) && s.anyPort(r.Ports, f) {
				return true
			}
		}
	}
	return !isolated
}

// enters: "Traffic is allowed to a pod if there are no NetworkPolicies selecting the pod [...], OR if the traffic source is the
// pod's local node, OR if the traffic matches at least one ingress rule across all of the NetworkPolicy objects whose podSelector
// matches the pod."
func (s slow) enters(p *placed, f flow) bool {
	isolated := false
	for _, np := range s.policies {
		if !s.selects(np, p) || !has(np, networkingv1.PolicyTypeIngress) {
			continue
		}
		isolated = true
		for _, r := range np.Spec.Ingress {
			if s.anyPeer(np, r.From, f.src) && s.anyPort(r.Ports, f) {
				return true
			}
		}
	}
	return !isolated
}

// selects: "podSelector selects the pods to which this NetworkPolicy object applies. [...] An empty selector matches all pods in the policy's namespace."
func (s slow) selects(np *networkingv1.NetworkPolicy, p *placed) bool {
	return np.Namespace == p.Namespace && matches(&np.Spec.PodSelector, p.Labels)
}

// has: "If this field is not specified, it will default based on the existence of ingress or egress rules; policies that contain
// an egress section are assumed to affect egress, and all policies (whether or not they contain an ingress section) are assumed to affect ingress."
func has(np *networkingv1.NetworkPolicy, t networkingv1.PolicyType) bool {
	if len(np.Spec.PolicyTypes) == 0 {
		return t == networkingv1.PolicyTypeIngress || len(np.Spec.Egress) > 0
	}
	return slices.Contains(np.Spec.PolicyTypes, t)
}

// anyPeer: "Items in this list are combined using a logical OR operation. If this field is empty or missing, this rule matches all sources".
func (s slow) anyPeer(np *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, a netip.Addr) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return s.peer(np, &p, a) })
}

func (s slow) peer(np *networkingv1.NetworkPolicy, peer *networkingv1.NetworkPolicyPeer, a netip.Addr) bool {
	if b := peer.IPBlock; b != nil {
		// "If this field is set then neither of the other fields can be."
		if peer.PodSelector != nil || peer.NamespaceSelector != nil || !slowBlock(b.CIDR, a) {
			return false
		}
		return !slices.ContainsFunc(b.Except, func(e string) bool { return slowBlock(e, a) })
	}
	p := s.pod(a)
	if p == nil || peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return false
	}
	// "If podSelector is also set, then the NetworkPolicyPeer as a whole selects the pods matching podSelector in the namespaces
	// selected by namespaceSelector. Otherwise it selects all pods in the namespaces selected by namespaceSelector."
	if peer.PodSelector != nil && !matches(peer.PodSelector, p.Labels) {
		return false
	}
	if peer.NamespaceSelector != nil {
		return matches(peer.NamespaceSelector, s.namespaces[p.Namespace].Labels)
	}
	// "Otherwise it selects the pods matching podSelector in the policy's own namespace."
	return p.Namespace == np.Namespace
}

// anyPort: "Each item in this list is combined using a logical OR. If this field is empty or missing, this rule matches all ports".
func (s slow) anyPort(ports []networkingv1.NetworkPolicyPort, f flow) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool { return s.port(&p, f) })
}

func (s slow) port(p *networkingv1.NetworkPolicyPort, f flow) bool {
	// "If not specified, this field defaults to TCP."
	protocol := corev1.ProtocolTCP
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	if f.protocol != slowProtocols[protocol] {
		return false
	}
	switch {
	case p.Port == nil:
		// "If this field is not provided, this matches all port names and numbers." "[endPort] cannot be defined if the port field is not defined".
		return p.EndPort == nil
	case p.Port.Type == intstr.String:
		// "or if the port field is defined as a named (string) port."
		return p.EndPort == nil && s.named(p.Port.StrVal, protocol, f)
	case p.EndPort != nil:
		// "indicates that the range of ports from port to endPort if set, inclusive, should be allowed".
		return p.Port.IntVal > 0 && p.Port.IntVal <= int32(f.port) && int32(f.port) <= *p.EndPort && *p.EndPort <= 65535
	}
	return int32(f.port) == p.Port.IntVal
}

// named: "This can either be a numerical or named port on a pod."
func (s slow) named(name string, protocol corev1.Protocol, f flow) bool {
	p := s.pod(f.dst)
	if p == nil {
		return false
	}
	containers := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(cp corev1.ContainerPort) bool {
			return cp.Name == name && name != "" && cp.Protocol == protocol && cp.ContainerPort == int32(f.port)
		})
	})
}

var slowProtocols = map[corev1.Protocol]model.Protocol{corev1.ProtocolTCP: model.ProtocolTCP, corev1.ProtocolUDP: model.ProtocolUDP, corev1.ProtocolSCTP: model.ProtocolSCTP}

// matches: "A label selector is a label query over a set of resources. The result of matchLabels and matchExpressions are ANDed.
// An empty label selector matches all objects."
func matches(s *metav1.LabelSelector, labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if value, ok := labels[k]; !ok || value != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, ok := labels[e.Key]
		in := ok && slices.Contains(e.Values, value)
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			ok = in
		case metav1.LabelSelectorOpNotIn:
			ok = !in
		case metav1.LabelSelectorOpExists:
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !ok
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

// slowBlock says whether a block holds an address, digit by digit for IPv4.
func slowBlock(block string, a netip.Addr) bool {
	text, length, ok := strings.Cut(block, "/")
	bits, err := strconv.Atoi(length)
	if !ok || err != nil {
		return false
	}
	if strings.Contains(text, ":") {
		net, err := netip.ParseAddr(text)
		return err == nil && a.Is6() && bits <= 128 && netip.PrefixFrom(net, bits).Contains(a)
	}
	var octets [4]byte
	parts := strings.Split(text, ".")
	if len(parts) != 4 || !a.Is4() || bits > 32 {
		return false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 8)
		if err != nil {
			return false
		}
		octets[i] = byte(n)
	}
	return netip.PrefixFrom(netip.AddrFrom4(octets), bits).Contains(a)
}
