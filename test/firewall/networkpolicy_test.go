// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-go/calico/pkg/explain"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

const inShop = "shop" // the namespace of the pods and NetworkPolicies here

// labelled is a pod of Kubernetes, with the label app.
func (r *rig) labelled(name string) *place {
	r.Helper()
	return r.pod(name, [2]string{"calico/k8s_ns", inShop}, [2]string{"app", name})
}

// networkPolicy writes what the controllers make of a NetworkPolicy for the pods with a label app.
func (r *rig) networkPolicy(name, app string, spec networkingv1.NetworkPolicySpec) {
	r.Helper()
	spec.PodSelector = *ofApp(app)
	key, value, problems := kubepolicy.Policy(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: inShop, Name: name}, Spec: spec})
	data, err := model.FormatValue(value)
	if err != nil || len(problems) > 0 {
		r.Fatal(err, problems)
	}
	r.put(key.Path(), string(data))
}

func ofApp(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func block(cidr fmt.Stringer, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr.String(), Except: except}}
}

// single is the block of one address.
func single(a netip.Addr) networkingv1.NetworkPolicyPeer {
	return block(netip.PrefixFrom(a, a.BitLen()))
}

// TestExcept: what a block leaves out isn't allowed by it, and is denied by nothing: another peer or policy may allow a part of it, in
// whichever order they come and go.
func TestExcept(t *testing.T) {
	r := newRig(t)
	web, friend, stranger := r.labelled("web"), r.labelled("friend"), r.labelled("stranger")
	var wide, some []networkingv1.NetworkPolicyPeer
	for _, a := range friend.addrs {
		pods := netip.PrefixFrom(a, a.BitLen()-6).Masked() // the host's block
		wide, some = append(wide, block(netip.PrefixFrom(a, 0).Masked(), pods.String())), append(some, single(a))
	}
	rules := map[string][]networkingv1.NetworkPolicyIngressRule{"wide": {{From: wide}}, "some": {{From: some}}, "both": {{From: append(wide, some...)}}}
	for _, steps := range []string{"+wide +some -wide +wide -some +some", "+some +wide -some +some -wide +wide", "+both -both +both +wide -both"} {
		held := map[string]bool{}
		for step := range strings.FieldsSeq(steps) {
			name := step[1:]
			if held[name] = step[0] == '+'; held[name] {
				r.networkPolicy(name, "web", networkingv1.NetworkPolicySpec{Ingress: rules[name]})
			} else {
				r.del(kubepolicy.PolicyKey(inShop, name).Path())
			}
			if !held["wide"] && !held["some"] && !held["both"] {
				continue // the profile of the network decides
			}
			r.enforced()
			r.probe(fmt.Sprintf("%s of %s", step, steps),
				expect{friend, web, "udp 80", held["some"] || held["both"]},
				expect{stranger, web, "udp 80", false},
				expect{r.outside, web, "udp 80", held["wide"] || held["both"]})
		}
		r.clear()
	}
}

// TestNodeLocalDNS has pods ask a DNS server that is on each node, at the service's address, which nobody translates then: a policy must
// name the address. Without that server policy sees the pods behind the service.
func TestNodeLocalDNS(t *testing.T) {
	r := newRig(t, "FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT") // as calico.yaml has it
	byAddress, byPods, dns := r.labelled("by-address"), r.labelled("by-pods"), r.labelled("dns")
	service := []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")}
	local := []netip.Addr{netip.MustParseAddr("169.254.20.10"), netip.MustParseAddr("fd00:20::10")}
	udp, tcp, port := corev1.ProtocolUDP, corev1.ProtocolTCP, intstr.FromInt32(53)
	ports := []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: &port}, {Protocol: &tcp, Port: &port}}
	egress := func(to ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: to, Ports: ports}},
		}
	}
	r.networkPolicy("by-address", "by-address", egress(single(service[0]), single(service[1]), single(local[0]), single(local[1])))
	r.networkPolicy("by-pods", "by-pods", egress(networkingv1.NetworkPolicyPeer{PodSelector: ofApp("dns")}))
	r.enforced()

	r.run(r.self, "ip", "link", "add", "nodelocaldns", "type", "bridge") // a dummy, which not every kernel has, as far as it matters
	for _, a := range append(service, local...) {
		r.run(r.self, "ip", "address", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "nodelocaldns", "nodad")
	}
	r.run(r.self, "ip", "link", "set", "nodelocaldns", "up")
	r.run(r.self, "nft", `add table inet nodelocaldns
add set inet nodelocaldns served { typeof ip daddr; elements = { 10.96.0.10, 169.254.20.10 }; }
add set inet nodelocaldns served6 { typeof ip6 daddr; elements = { fd00:10:96::a, fd00:20::10 }; }
add chain inet nodelocaldns in { type filter hook prerouting priority raw; }
add chain inet nodelocaldns out { type filter hook output priority raw; }
add rule inet nodelocaldns in ip daddr @served th dport 53 notrack
add rule inet nodelocaldns in ip6 daddr @served6 th dport 53 notrack
add rule inet nodelocaldns out ip saddr @served th sport 53 notrack
add rule inet nodelocaldns out ip6 saddr @served6 th sport 53 notrack`)
	for _, at := range []*place{r.self.at("the node, as the service", service...), r.self.at("the node", local...)} {
		r.probe("a server on the node",
			expect{byAddress, at, "udp 53", true}, expect{byAddress, at, "tcp 53", true}, expect{byAddress, at, "udp 54", false},
			expect{byPods, at, "udp 53", false}, expect{byPods, at, "tcp 53", false})
	}
	snapshot, err := r.lab.Etcd().Read(r.ctx(), explain.Ranges()...)
	if err != nil {
		t.Fatal(err)
	}
	cluster := explain.New(snapshot.Entries())
	for p, want := range map[*place]string{byAddress: "policy knp.shop.by-address rule 0: allow", byPods: "policies apply and none decides: drop"} {
		from, err := cluster.Find(p.addrs[0].String(), "")
		if err != nil {
			t.Fatal(err)
		}
		hops, err := cluster.Follow(explain.Flow{From: from, To: explain.End{Addrs: service[:1]}, Protocol: model.ProtocolUDP, Port: 53})
		if err != nil {
			t.Fatal(err)
		}
		if trail := fmt.Sprint(hops[0].Trail); !strings.Contains(trail, want) {
			t.Errorf("explain %s: %s: want %s", p.name, trail, want)
		}
	}

	r.run(r.self, "ip", "link", "delete", "nodelocaldns")
	r.run(r.self, "nft", fmt.Sprintf(`delete table inet nodelocaldns
add table inet proxy
add chain inet proxy in { type nat hook prerouting priority dstnat; }
add rule inet proxy in ip daddr %s th dport 53 dnat ip to %s
add rule inet proxy in ip6 daddr %s th dport 53 dnat ip6 to %s`, service[0], dns.addrs[0], service[1], dns.addrs[1]))
	behind := dns.at("a pod behind the service", service...)
	r.probe("no server on the node",
		expect{byPods, behind, "udp 53", true}, expect{byPods, behind, "tcp 53", true},
		expect{byAddress, behind, "udp 53", false}, expect{byAddress, behind, "tcp 53", false})
}
