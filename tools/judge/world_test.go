// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/model"
)

// world is a small cluster, in which everything meets everything else soon. All of it is valid: what an API server refuses upstream may
// take as it likes. The defaults that an API server adds are missing.
type world struct {
	Namespaces      []*corev1.Namespace
	Pods            []*corev1.Pod
	Policies        []*networkingv1.NetworkPolicy
	ClusterPolicies []*v1alpha2.ClusterNetworkPolicy
}

// flow is the first packet of a connection.
type flow struct {
	Src, Dst netip.Addr
	Protocol model.Protocol
	Port     uint16
}

// outside are addresses that no pod has for itself. The first is that of a node, and of a pod in its network.
var outside = []string{"192.0.2.1", "192.0.2.2", "10.0.0.99", "2001:db8::1", "fd00::99"}

// chooser chooses at random.
type chooser struct{ *rand.Rand }

func one[T any](c chooser, of ...T) T { return of[c.IntN(len(of))] }

// some returns up to n of what make makes; nil, as it comes from an API server, if that is none.
func some[T any](c chooser, n int, make func() T) (out []T) {
	for range c.IntN(n + 1) {
		out = append(out, make())
	}
	return out
}

func (c chooser) world() *world {
	w := &world{}
	for _, name := range []string{"n1", "n2", "n3"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: c.labels()}}
		ns.Labels[corev1.LabelMetadataName] = name
		w.Namespaces = append(w.Namespaces, ns)
	}
	for i := range 7 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: one(c, "n1", "n2", "n3"), Name: fmt.Sprintf("p%d", i), Labels: c.labels()}}
		pod.Spec.NodeName, pod.Spec.ServiceAccountName = one(c, "h1", "h2"), "default"
		pod.Spec.Containers = append(some(c, 1, c.container), c.container())
		both := []corev1.PodIP{{IP: fmt.Sprintf("10.0.%d.%d", i%2, i)}, {IP: []string{"fd00::%d", "fd00::1:%d"}[i%2]}}
		both[1].IP = fmt.Sprintf(both[1].IP, i)
		pod.Status.PodIPs = one(c, both, both[:1], both[1:])
		if i == 0 {
			pod.Spec.HostNetwork, pod.Status.PodIPs = true, []corev1.PodIP{{IP: outside[0]}}
		}
		pod.Status.Phase = corev1.PodRunning
		w.Pods = append(w.Pods, pod)
	}
	var baseline bool
	if c.IntN(2) == 0 {
		for i := range c.IntN(4) {
			w.ClusterPolicies = append(w.ClusterPolicies, c.clusterPolicy(fmt.Sprintf("c%d", i), v1alpha2.AdminTier))
		}
		// Equal priorities are undefined.
		for i, priority := range c.Perm(len(w.ClusterPolicies)) {
			w.ClusterPolicies[i].Spec.Priority = int32(priority)
		}
		if baseline = c.IntN(2) == 0; baseline {
			w.ClusterPolicies = append(w.ClusterPolicies, c.clusterPolicy("default", v1alpha2.BaselineTier)) // the kind that upstream knows is one per cluster
		}
	}
	for i := range c.IntN(5) {
		np := c.policy(fmt.Sprintf("p%d", i))
		if baseline {
			// Upstream skips the baseline for pods that any NetworkPolicy selects, even if it is about the other direction alone.
			np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
		}
		w.Policies = append(w.Policies, np)
	}
	return w
}

func (c chooser) labels() map[string]string {
	out := map[string]string{}
	for range c.IntN(4) {
		out[one(c, "a", "b", "example.com/c")] = one(c, "x", "w", "")
	}
	return out
}

// container has ports, as a pod's containers alone have them for upstream: it leaves out those of init containers that keep running.
func (c chooser) container() corev1.Container {
	return corev1.Container{Ports: some(c, 2, func() corev1.ContainerPort {
		return corev1.ContainerPort{
			Name: one(c, "web", "dns", ""), ContainerPort: one[int32](c, 53, 80, 81), Protocol: one(c, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		}
	})}
}

func (c chooser) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if c.IntN(3) == 0 {
		s.MatchLabels = map[string]string{one(c, "a", "b", "example.com/c"): one(c, "x", "w", "")}
	}
	for range c.IntN(3) - 1 {
		e := metav1.LabelSelectorRequirement{Key: one(c, "a", "b", "example.com/c", corev1.LabelMetadataName)}
		e.Operator = one(c, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			e.Values = append(some(c, 1, func() string { return one(c, "x", "n1") }), one(c, "x", "w", "", "n1", "n2"))
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func (c chooser) policy(name string) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: one(c, "n1", "n2", "n3"), Name: name}}
	np.Spec.PodSelector = *c.selector()
	np.Spec.Ingress = some(c, 2, func() networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: some(c, 2, c.peer), Ports: some(c, 2, c.port)}
	})
	np.Spec.Egress = some(c, 2, func() networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: some(c, 2, c.peer), Ports: some(c, 2, c.port)}
	})
	in, out := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	np.Spec.PolicyTypes = one(c, nil, nil, []networkingv1.PolicyType{in}, []networkingv1.PolicyType{out}, []networkingv1.PolicyType{in, out})
	return np
}

func (c chooser) peer() networkingv1.NetworkPolicyPeer {
	switch c.IntN(5) {
	case 0:
		return networkingv1.NetworkPolicyPeer{PodSelector: c.selector()}
	case 1:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: c.selector()}
	case 2:
		b := &networkingv1.IPBlock{CIDR: one(c, "::/0", "fd00::/64"), Except: one(c, nil, []string{"fd00::1:0/112"}, []string{"fd00::2/128", "fd00::1:3/128"})}
		return networkingv1.NetworkPolicyPeer{IPBlock: b}
	case 3:
		b := &networkingv1.IPBlock{CIDR: one(c, "0.0.0.0/0", "10.0.0.0/16"), Except: one(c, nil, []string{"10.0.1.0/24"}, []string{"10.0.0.2/32", "10.0.1.0/30"})}
		return networkingv1.NetworkPolicyPeer{IPBlock: one(c, b, b, &networkingv1.IPBlock{CIDR: "192.0.2.1/32"})}
	}
	return networkingv1.NetworkPolicyPeer{PodSelector: c.selector(), NamespaceSelector: c.selector()}
}

func (c chooser) port() (p networkingv1.NetworkPolicyPort) {
	if c.IntN(2) == 0 {
		p.Protocol = new(one(c, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP))
	}
	switch c.IntN(4) {
	case 0:
		p.Port = new(intstr.FromString(one(c, "web", "dns", "none")))
	case 1:
		p.Port = new(intstr.FromInt32(one[int32](c, 53, 80)))
	case 2:
		p.Port, p.EndPort = new(intstr.FromInt32(one[int32](c, 1, 53))), new(one[int32](c, 53, 80, 65535))
	}
	return p
}

func (c chooser) clusterPolicy(name string, tier v1alpha2.Tier) *v1alpha2.ClusterNetworkPolicy {
	cnp := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	subject := c.clusterPeer(false)
	cnp.Spec.Tier, cnp.Spec.Subject = tier, v1alpha2.ClusterNetworkPolicySubject{Namespaces: subject.Namespaces, Pods: subject.Pods}
	actions := []v1alpha2.ClusterNetworkPolicyRuleAction{v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny}
	if tier == v1alpha2.AdminTier { // in the last tier the kind that upstream knows has no Pass
		actions = append(actions, v1alpha2.ClusterNetworkPolicyRuleActionPass)
	}
	cnp.Spec.Ingress = some(c, 2, func() v1alpha2.ClusterNetworkPolicyIngressRule {
		r := v1alpha2.ClusterNetworkPolicyIngressRule{Action: one(c, actions...), Protocols: some(c, 2, c.protocol)}
		for range 1 + c.IntN(2) {
			p := c.clusterPeer(false)
			r.From = append(r.From, v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		return r
	})
	cnp.Spec.Egress = some(c, 2, func() v1alpha2.ClusterNetworkPolicyEgressRule {
		r := v1alpha2.ClusterNetworkPolicyEgressRule{Action: one(c, actions...), Protocols: some(c, 2, c.protocol)}
		for range 1 + c.IntN(2) {
			r.To = append(r.To, c.clusterPeer(true))
		}
		return r
	})
	return cnp
}

// clusterPeer is none of nodes: upstream takes those for the pods on them.
func (c chooser) clusterPeer(egress bool) (p v1alpha2.ClusterNetworkPolicyEgressPeer) {
	switch n := c.IntN(4); {
	case n == 0 && egress:
		p.Networks = one(c, []v1alpha2.CIDR{"10.0.0.0/24"}, []v1alpha2.CIDR{"192.0.2.0/24", "fd00::/112"}, []v1alpha2.CIDR{"0.0.0.0/0"})
	case n == 1:
		p.Namespaces = c.selector()
	default:
		p.Pods = &v1alpha2.NamespacedPod{NamespaceSelector: *c.selector(), PodSelector: *c.selector()}
	}
	return p
}

// protocol has no name of a port: for upstream it then matches all ports of the pods that have one of that name.
func (c chooser) protocol() v1alpha2.ClusterNetworkPolicyProtocol {
	port := one(c, &v1alpha2.Port{Number: 80}, &v1alpha2.Port{Number: 53}, &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: 53, End: 80}})
	return one(c,
		v1alpha2.ClusterNetworkPolicyProtocol{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}},
		v1alpha2.ClusterNetworkPolicyProtocol{UDP: &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}},
		v1alpha2.ClusterNetworkPolicyProtocol{SCTP: &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}})
}

// flows returns random flows with a pod at one end at least. None is of a pod to itself: what becomes of that is undefined.
func (c chooser) flows(w *world, n int) (out []flow) {
	var addrs []netip.Addr
	for _, s := range outside {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	for _, p := range w.Pods {
		for _, a := range p.Status.PodIPs {
			addrs = append(addrs, netip.MustParseAddr(a.IP))
		}
	}
	for len(out) < n {
		f := flow{Src: one(c, addrs...), Dst: one(c, addrs...)}
		src, dst := w.pod(f.Src), w.pod(f.Dst)
		if f.Src.Is4() != f.Dst.Is4() || src == dst {
			continue
		}
		if f.Protocol = one(c, 0, model.ProtocolTCP, model.ProtocolUDP, model.ProtocolSCTP); f.Protocol != 0 {
			f.Port = one[uint16](c, 52, 53, 80, 81)
		}
		out = append(out, f)
	}
	return out
}

// pod returns the pod that has an address for itself.
func (w *world) pod(a netip.Addr) *corev1.Pod {
	i := slices.IndexFunc(w.Pods, func(p *corev1.Pod) bool {
		return !p.Spec.HostNetwork && slices.Contains(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
	})
	if i < 0 {
		return nil
	}
	return w.Pods[i]
}
