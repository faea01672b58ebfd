// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

func (c chooser) clusterPeer(egress bool) v1alpha2.ClusterNetworkPolicyEgressPeer {
	var p v1alpha2.ClusterNetworkPolicyEgressPeer
	switch c.IntN(12) {
	case 0: // of the next version
	case 1, 2, 3, 4:
		p.Namespaces = c.selector()
	case 5, 6:
		if egress {
			p.Networks = one(c, []v1alpha2.CIDR{"10.0.0.0/24"}, []v1alpha2.CIDR{"192.0.2.0/24", "fd00::/112"}, []v1alpha2.CIDR{"0.0.0.0/0"})
		}
	case 7, 8:
		if egress {
			p.Nodes = one(c, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}}, &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "z"}})
		}
	default:
		p.Pods = &v1alpha2.NamespacedPod{NamespaceSelector: *c.selector(), PodSelector: *c.selector()}
	}
	return p
}

func (c chooser) protocols() []v1alpha2.ClusterNetworkPolicyProtocol {
	var out []v1alpha2.ClusterNetworkPolicyProtocol
	for range c.IntN(3) {
		port := one(c, &v1alpha2.Port{Number: 80}, &v1alpha2.Port{Number: 53}, &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: 53, End: 80}})
		if c.IntN(12) == 0 {
			port = one(c, nil, &v1alpha2.Port{}, &v1alpha2.Port{Number: 80, Range: &v1alpha2.PortRange{Start: 1, End: 9}})
		}
		out = append(out, one(c,
			v1alpha2.ClusterNetworkPolicyProtocol{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}},
			v1alpha2.ClusterNetworkPolicyProtocol{UDP: &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}},
			v1alpha2.ClusterNetworkPolicyProtocol{SCTP: &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}},
			v1alpha2.ClusterNetworkPolicyProtocol{DestinationNamedPort: one(c, "web", "dns", "none")}))
	}
	return out
}

func (c chooser) clusterPolicy(name string) *v1alpha2.ClusterNetworkPolicy {
	cnp := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cnp.Spec.Tier, cnp.Spec.Priority = one(c, v1alpha2.AdminTier, v1alpha2.BaselineTier), one[int32](c, 0, 1, 1000)
	if cnp.Spec.Subject.Namespaces = c.selector(); c.IntN(2) == 0 {
		cnp.Spec.Subject = v1alpha2.ClusterNetworkPolicySubject{Pods: &v1alpha2.NamespacedPod{NamespaceSelector: *c.selector(), PodSelector: *c.selector()}}
	}
	action := func() v1alpha2.ClusterNetworkPolicyRuleAction {
		return one(c, v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny, v1alpha2.ClusterNetworkPolicyRuleActionPass)
	}
	for range c.IntN(3) {
		r := v1alpha2.ClusterNetworkPolicyIngressRule{Action: action(), Protocols: c.protocols()}
		for range 1 + c.IntN(2) {
			p := c.clusterPeer(false)
			r.From = append(r.From, v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		cnp.Spec.Ingress = append(cnp.Spec.Ingress, r)
	}
	for range c.IntN(3) {
		r := v1alpha2.ClusterNetworkPolicyEgressRule{Action: action(), Protocols: c.protocols()}
		for range 1 + c.IntN(2) {
			r.To = append(r.To, c.clusterPeer(true))
		}
		cnp.Spec.Egress = append(cnp.Spec.Egress, r)
	}
	return cnp
}

// nodes are two of what is outside.
func (w *world) nodes() []kubepolicy.Node {
	return []kubepolicy.Node{{Labels: map[string]string{"rack": "a"}, Addrs: w.outside[0:1]}, {Labels: map[string]string{"rack": "b"}, Addrs: w.outside[1:2]}}
}

// Random policies of both kinds let through what the APIs say together, no more and no less.
func TestClusterPoliciesAgreeWithTheAPI(t *testing.T) {
	worlds := 400
	if testing.Short() {
		worlds = 40
	}
	passed, dropped := 0, 0
	for seed := range uint64(worlds) {
		c := chooser{rand.New(rand.NewPCG(seed, 2))}
		s := slowCluster{slow: slow{world: c.world()}}
		s.nodes = s.world.nodes()
		puts := kubepolicy.Tiers()
		for i := range c.IntN(3) {
			np := c.policy(fmt.Sprintf("p%d", i))
			key, p, _ := kubepolicy.Policy(np)
			s.policies, puts = append(s.policies, np), append(puts, model.Put{Key: key, Value: p})
		}
		for i := range 1 + c.IntN(3) {
			cnp := c.clusterPolicy(fmt.Sprintf("c%d", i))
			key, p, _ := kubepolicy.ClusterPolicy(cnp, s.nodes)
			s.cluster, puts = append(s.cluster, cnp), append(puts, model.Put{Key: key, Value: p})
		}
		st := s.state(t, puts...)
		for _, f := range s.flows() {
			want, got := s.allows(f), s.verdict(st, f)
			if want != (got.Verdict == policy.Accept) {
				t.Fatalf("seed %d: %v: allowed %t by the API, but %s\n%s\n%s\n%s", seed, f, want, got.Verdict, trail(got), dump(s.policies), dump(s.cluster))
			}
			if want {
				passed++
			} else {
				dropped++
			}
		}
	}
	if passed < dropped/20 || dropped < passed/20 {
		t.Errorf("%d flows passed, %d dropped: policies that tell nothing apart", passed, dropped)
	}
}
