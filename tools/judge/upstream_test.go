// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"context"
	"net"
	"testing"
	_ "unsafe" // for linkname

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/network-policy-api/pkg/client/clientset/versioned"
	"sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"

	"github.com/calico-go/calico/pkg/model"
)

// evaluatePacket is what upstream asks about each packet of its queue. The version in go.mod exports no evaluation.
//
//go:linkname evaluatePacket sigs.k8s.io/kube-network-policies/pkg/networkpolicy.(*Controller).evaluatePacket
func evaluatePacket(c *networkpolicy.Controller, ctx context.Context, p packet) bool

// packet is upstream's, field by field.
type packet struct {
	_                uint32 // id
	_                corev1.IPFamily
	srcIP, dstIP     net.IP
	proto            corev1.Protocol
	srcPort, dstPort int
	_                []byte // payload
}

// upstream is a controller of kube-network-policies that has never run, with the objects of a world.
type upstream struct {
	controller                                  *networkpolicy.Controller
	namespaces, pods, policies, admin, baseline cache.Indexer
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	client, policyClient := kubernetes.NewForConfigOrDie(&rest.Config{}), versioned.NewForConfigOrDie(&rest.Config{})
	core, policies := informers.NewSharedInformerFactory(client, 0), externalversions.NewSharedInformerFactory(policyClient, 0).Policy().V1alpha1()
	c, err := networkpolicy.NewController(client, core.Networking().V1().NetworkPolicies(), core.Core().V1().Namespaces(), core.Core().V1().Pods(), core.Core().V1().Nodes(),
		policyClient, policies.AdminNetworkPolicies(), policies.BaselineAdminNetworkPolicies(),
		networkpolicy.Config{AdminNetworkPolicy: true, BaselineAdminNetworkPolicy: true, NodeName: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	return &upstream{
		c, core.Core().V1().Namespaces().Informer().GetIndexer(), core.Core().V1().Pods().Informer().GetIndexer(),
		core.Networking().V1().NetworkPolicies().Informer().GetIndexer(),
		policies.AdminNetworkPolicies().Informer().GetIndexer(), policies.BaselineAdminNetworkPolicies().Informer().GetIndexer(),
	}
}

// load replaces the objects by those of a world.
func (u *upstream) load(t *testing.T, w *world) {
	t.Helper()
	var namespaces, pods, policies, admin, baseline []any
	for _, ns := range w.Namespaces {
		namespaces = append(namespaces, ns)
	}
	for _, p := range w.Pods {
		pods = append(pods, p)
	}
	for _, np := range w.Policies {
		policies = append(policies, stored(np))
	}
	for _, cnp := range w.ClusterPolicies {
		if cnp.Spec.Tier == v1alpha2.AdminTier {
			admin = append(admin, adminPolicy(cnp))
		} else {
			baseline = append(baseline, baselinePolicy(adminPolicy(cnp)))
		}
	}
	for indexer, objects := range map[cache.Indexer][]any{u.namespaces: namespaces, u.pods: pods, u.policies: policies, u.admin: admin, u.baseline: baseline} {
		if err := indexer.Replace(objects, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// allows says whether upstream lets a flow through from end to end.
func (u *upstream) allows(f flow) bool {
	return evaluatePacket(u.controller, context.Background(), packet{
		srcIP: f.Src.AsSlice(), dstIP: f.Dst.AsSlice(), proto: protocols[f.Protocol], srcPort: 40000, dstPort: int(f.Port),
	})
}

// protocols are those that have ports; a ping has none for upstream either.
var protocols = map[model.Protocol]corev1.Protocol{model.ProtocolTCP: corev1.ProtocolTCP, model.ProtocolUDP: corev1.ProtocolUDP, model.ProtocolSCTP: corev1.ProtocolSCTP}

// stored is a policy with the defaults that an API server adds.
func stored(np *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	np = np.DeepCopy()
	if len(np.Spec.PolicyTypes) == 0 {
		np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(np.Spec.Egress) > 0 {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for _, r := range np.Spec.Ingress {
		defaultProtocol(r.Ports)
	}
	for _, r := range np.Spec.Egress {
		defaultProtocol(r.Ports)
	}
	return np
}

func defaultProtocol(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			ports[i].Protocol = new(corev1.ProtocolTCP)
		}
	}
}

// adminPolicy is a ClusterNetworkPolicy as the kind that was before it, which is the one that upstream knows.
func adminPolicy(cnp *v1alpha2.ClusterNetworkPolicy) *v1alpha1.AdminNetworkPolicy {
	anp := &v1alpha1.AdminNetworkPolicy{ObjectMeta: cnp.ObjectMeta}
	anp.Spec.Priority = cnp.Spec.Priority
	anp.Spec.Subject = v1alpha1.AdminNetworkPolicySubject{Namespaces: cnp.Spec.Subject.Namespaces, Pods: (*v1alpha1.NamespacedPod)(cnp.Spec.Subject.Pods)}
	for _, r := range cnp.Spec.Ingress {
		rule := v1alpha1.AdminNetworkPolicyIngressRule{Action: action(r.Action), Ports: ports(r.Protocols)}
		for _, p := range r.From {
			rule.From = append(rule.From, v1alpha1.AdminNetworkPolicyIngressPeer{Namespaces: p.Namespaces, Pods: (*v1alpha1.NamespacedPod)(p.Pods)})
		}
		anp.Spec.Ingress = append(anp.Spec.Ingress, rule)
	}
	for _, r := range cnp.Spec.Egress {
		rule := v1alpha1.AdminNetworkPolicyEgressRule{Action: action(r.Action), Ports: ports(r.Protocols)}
		for _, p := range r.To {
			peer := v1alpha1.AdminNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: (*v1alpha1.NamespacedPod)(p.Pods)}
			for _, n := range p.Networks {
				peer.Networks = append(peer.Networks, v1alpha1.CIDR(n))
			}
			rule.To = append(rule.To, peer)
		}
		anp.Spec.Egress = append(anp.Spec.Egress, rule)
	}
	return anp
}

// baselinePolicy is the same in the other tier, of which a cluster has one policy without a priority.
func baselinePolicy(anp *v1alpha1.AdminNetworkPolicy) *v1alpha1.BaselineAdminNetworkPolicy {
	out := &v1alpha1.BaselineAdminNetworkPolicy{ObjectMeta: anp.ObjectMeta}
	out.Name, out.Spec.Subject = "default", anp.Spec.Subject
	for _, r := range anp.Spec.Ingress {
		out.Spec.Ingress = append(out.Spec.Ingress, v1alpha1.BaselineAdminNetworkPolicyIngressRule{Action: v1alpha1.BaselineAdminNetworkPolicyRuleAction(r.Action), From: r.From, Ports: r.Ports})
	}
	for _, r := range anp.Spec.Egress {
		rule := v1alpha1.BaselineAdminNetworkPolicyEgressRule{Action: v1alpha1.BaselineAdminNetworkPolicyRuleAction(r.Action), Ports: r.Ports}
		for _, p := range r.To {
			rule.To = append(rule.To, v1alpha1.BaselineAdminNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: p.Pods, Networks: p.Networks})
		}
		out.Spec.Egress = append(out.Spec.Egress, rule)
	}
	return out
}

func action(a v1alpha2.ClusterNetworkPolicyRuleAction) v1alpha1.AdminNetworkPolicyRuleAction {
	if a == v1alpha2.ClusterNetworkPolicyRuleActionAccept {
		return v1alpha1.AdminNetworkPolicyRuleActionAllow
	}
	return v1alpha1.AdminNetworkPolicyRuleAction(a)
}

func ports(all []v1alpha2.ClusterNetworkPolicyProtocol) *[]v1alpha1.AdminNetworkPolicyPort {
	if len(all) == 0 {
		return nil
	}
	var out []v1alpha1.AdminNetworkPolicyPort
	add := func(protocol corev1.Protocol, p *v1alpha2.Port) {
		if p.Range != nil {
			out = append(out, v1alpha1.AdminNetworkPolicyPort{PortRange: &v1alpha1.PortRange{Protocol: protocol, Start: p.Range.Start, End: p.Range.End}})
		} else {
			out = append(out, v1alpha1.AdminNetworkPolicyPort{PortNumber: &v1alpha1.Port{Protocol: protocol, Port: p.Number}})
		}
	}
	for _, p := range all {
		switch {
		case p.TCP != nil:
			add(corev1.ProtocolTCP, p.TCP.DestinationPort)
		case p.UDP != nil:
			add(corev1.ProtocolUDP, p.UDP.DestinationPort)
		default:
			add(corev1.ProtocolSCTP, p.SCTP.DestinationPort)
		}
	}
	return &out
}
