// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"net/netip"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/kubepolicy"
)

var clusterNodes = []kubepolicy.Node{
	{Labels: map[string]string{"rack": "a"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
	{Labels: map[string]string{"rack": "b"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}},
	{Labels: map[string]string{"rack": "c"}},
}

// clusterRows are specs of a ClusterNetworkPolicy, and what is stored as in policyRows, after the tier.
var clusterRows = []struct{ name, spec, want, problems string }{
	{"all pods, no rules", `{tier: Admin, priority: 5, subject: {namespaces: {}}}`,
		`kube-admin selector: calico/k8s_ns in {}; inbound; outbound`, ""},
	{"baseline; a direction without rules", `{tier: Baseline, priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}], egress: []}`,
		`kube-baseline selector: has(calico/k8s_ns); inbound {"action":"deny","src_selector":"has(calico/k8s_ns)"}`, ""},
	{"actions", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Accept, to: [{namespaces: {}}]}, {action: Pass, to: [{namespaces: {}}]}, {action: Deny, to: [{namespaces: {}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); outbound {"action":"allow","dst_selector":"has(calico/k8s_ns)"} {"action":"next-tier","dst_selector":"has(calico/k8s_ns)"} {"action":"deny","dst_selector":"has(calico/k8s_ns)"}`, ""},
	{"subject and peers by labels", `
tier: Admin
priority: 5
subject: {pods: {namespaceSelector: {matchLabels: {team: x}}, podSelector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}}}
ingress: [{action: Accept, from: [{namespaces: {matchExpressions: [{key: team, operator: DoesNotExist}]}}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: c}}}}]}]`,
		`kube-admin selector: has(calico/k8s_ns) && k8s_ns/label/team == "x" && app in {"a", "b"}; inbound` +
			` {"action":"allow","src_selector":"has(calico/k8s_ns) && has(k8s_ns/label/kubernetes.io/metadata.name) && !has(k8s_ns/label/team)"} {"action":"allow","src_selector":"has(calico/k8s_ns) && app == "c""}`, ""},
	{"peers by what their namespace is not", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Pass, to: [{pods: {namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [x]}]}, podSelector: {}}}]}, {action: Deny, to: [{namespaces: {matchExpressions: [{key: team, operator: DoesNotExist}]}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); outbound {"action":"next-tier","dst_selector":"has(calico/k8s_ns) && has(k8s_ns/label/kubernetes.io/metadata.name) && k8s_ns/label/team not in {"x"}"}` +
			` {"action":"deny","dst_selector":"has(calico/k8s_ns) && !has(k8s_ns/label/team)"}`, ""},
	{"a subject by what its namespace is not: denials hold at once", `{tier: Admin, priority: 5, subject: {namespaces: {matchExpressions: [{key: team, operator: DoesNotExist}]}}, ingress: [{action: Accept, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}], egress: [{action: Pass, to: [{networks: [10.0.0.0/8]}]}]}`,
		`kube-admin selector: has(calico/k8s_ns) && !has(k8s_ns/label/team); inbound` +
			` {"action":"allow","src_selector":"has(calico/k8s_ns)","dst_selector":"has(calico/k8s_ns) && has(k8s_ns/label/kubernetes.io/metadata.name)"} {"action":"deny","src_selector":"has(calico/k8s_ns)"};` +
			` outbound {"action":"next-tier","src_selector":"has(calico/k8s_ns) && has(k8s_ns/label/kubernetes.io/metadata.name)","dst_net":"10.0.0.0/8"}`, ""},
	{"networks", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [10.0.0.0/8, "fd00::/8"]}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); outbound {"action":"deny","dst_nets":["10.0.0.0/8","fd00::/8"]}`, ""},
	{"nodes", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {matchLabels: {rack: a}}}]}, {action: Accept, to: [{nodes: {}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); outbound {"action":"deny","dst_nets":["192.0.2.1/32","2001:db8::1/128"]} {"action":"allow","dst_nets":["192.0.2.1/32","2001:db8::1/128","192.0.2.2/32"]}`, ""},
	{"nodes that nobody is, or without addresses", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {matchLabels: {rack: z}}}]}, {action: Accept, to: [{nodes: {matchLabels: {rack: c}}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); outbound`, ""},
	{"protocols", `
tier: Admin
priority: 5
subject: {namespaces: {}}
ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 80}}}, {udp: {destinationPort: {range: {start: 5000, end: 5010}}}}, {tcp: {destinationPort: {number: 443}}}, {sctp: {destinationPort: {number: 9}}}]}]`,
		`kube-admin selector: has(calico/k8s_ns); inbound` +
			` {"action":"deny","protocol":"tcp","src_selector":"has(calico/k8s_ns)","dst_ports":[80,443]} {"action":"deny","protocol":"udp","src_selector":"has(calico/k8s_ns)","dst_ports":["5000:5010"]} {"action":"deny","protocol":"sctp","src_selector":"has(calico/k8s_ns)","dst_ports":[9]}`, ""},
	{"destinationNamedPort", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Pass, to: [{namespaces: {}}], protocols: [{destinationNamedPort: web}, {tcp: {destinationPort: {number: 80}}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); outbound` +
			` {"action":"next-tier","protocol":"tcp","dst_selector":"has(calico/k8s_ns)","dst_ports":["web",80]} {"action":"next-tier","protocol":"udp","dst_selector":"has(calico/k8s_ns)","dst_ports":["web"]} {"action":"next-tier","protocol":"sctp","dst_selector":"has(calico/k8s_ns)","dst_ports":["web"]}`, ""},
	{"a named port of what has none", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Accept, to: [{networks: [10.0.0.0/8]}], protocols: [{destinationNamedPort: web}]}, {action: Deny, to: [{namespaces: {}}, {nodes: {}}], protocols: [{destinationNamedPort: web}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); outbound {"action":"deny"}`, "spec.egress[0].protocols[0] spec.egress[1].protocols[0]"},

	{"no subject", `{tier: Admin, priority: 5, subject: {}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}`,
		`kube-admin selector: calico/k8s_ns in {}; inbound; outbound`, "spec.subject"},
	{"two subjects", `{tier: Admin, priority: 5, subject: {namespaces: {}, pods: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}`,
		`kube-admin selector: calico/k8s_ns in {}; inbound; outbound`, "spec.subject"},
	{"a subject of the next version: its denials for the rest of it", `
tier: Baseline
priority: 5
subject: {namespaces: {matchLabels: {team: x}, matchExpressions: [{key: a, operator: Like, values: [b]}]}}
ingress: [{action: Accept, from: [{namespaces: {}}]}, {action: Pass, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}, {action: Accept, from: [{}]}, {action: Pass, from: [{}]}]`,
		`kube-baseline selector: has(calico/k8s_ns) && k8s_ns/label/team == "x"; inbound {"action":"deny","src_selector":"has(calico/k8s_ns)"} {"action":"deny"}`, "spec.subject.namespaces.matchExpressions[0] spec.ingress[3].from[0] spec.ingress[4].from[0]"},
	{"a tier of the next version: its denials, in the first", `{tier: Later, priority: 5, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); inbound {"action":"deny","src_selector":"has(calico/k8s_ns)"}`, "spec.tier"},
	{"an action of the next version denies", `{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Mirror, from: [{namespaces: {}}]}, {from: [{}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); inbound {"action":"deny","src_selector":"has(calico/k8s_ns)"} {"action":"deny"}`, "spec.ingress[0].action spec.ingress[1].action spec.ingress[1].from[0]"},
	{"unknown peers accept nothing", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Accept, to: [{}]}, {action: Accept, to: [{domainNames: [example.com]}, {namespaces: {}}]}, {action: Accept, to: []}, {action: Accept, to: [{namespaces: {}, networks: [10.0.0.0/8]}]}, {action: Accept, to: [{networks: [10.0.0.1]}]}, {action: Accept, to: [{nodes: {matchExpressions: [{key: a, operator: Like}]}}]}, {action: Accept, to: [{namespaces: {matchExpressions: [{key: a, operator: Like}]}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); outbound`,
		"spec.egress[0].to[0] spec.egress[1].to[0] spec.egress[2].to spec.egress[3].to[0] spec.egress[4].to[0].networks[0] spec.egress[5].to[0].nodes spec.egress[6].to[0].namespaces.matchExpressions[0]"},
	{"unknown peers deny all", `{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{}, {namespaces: {}}]}, {action: Pass, from: []}], egress: [{action: Pass, to: [{domainNames: [example.com]}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); inbound {"action":"deny"} {"action":"deny"}; outbound {"action":"deny"}`, "spec.ingress[0].from[0] spec.ingress[1].from spec.egress[0].to[0]"},
	{"unknown protocols accept nothing", `{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}], protocols: [{}, {tcp: {destinationPort: {number: 80}}}]}, {action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {}}]}, {action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {}}}]}, {action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 65536}}}]}, {action: Accept, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {range: {start: 9, end: 8}}}}]}, {action: Accept, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 1, range: {start: 8, end: 9}}}}]}, {action: Accept, from: [{namespaces: {}}], protocols: [{destinationNamedPort: "80"}]}, {action: Accept, from: [{namespaces: {}}], protocols: [{destinationNamedPort: a, tcp: {destinationPort: {number: 80}}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); inbound`,
		"spec.ingress[0].protocols[0] spec.ingress[1].protocols[0] spec.ingress[2].protocols[0] spec.ingress[3].protocols[0] spec.ingress[4].protocols[0] spec.ingress[5].protocols[0] spec.ingress[6].protocols[0] spec.ingress[7].protocols[0]"},
	{"unknown protocols deny all", `{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: -1}}}]}]}`,
		`kube-admin selector: has(calico/k8s_ns); inbound {"action":"deny"}`, "spec.ingress[0].protocols[0]"},
}

func TestClusterPolicy(t *testing.T) {
	for _, row := range clusterRows {
		t.Run(row.name, func(t *testing.T) {
			cnp := &v1alpha2.ClusterNetworkPolicy{Spec: *decode[v1alpha2.ClusterNetworkPolicySpec](t, row.spec)}
			cnp.Name = "guard"
			key, p, problems := kubepolicy.ClusterPolicy(cnp, clusterNodes)
			if key.Policy != "kcnp.guard" {
				t.Errorf("key %v, want kcnp.guard", key)
			}
			if p.Order == nil || *p.Order != 5 {
				t.Errorf("order %v, want 5", p.Order)
			}
			check(t, key.Tier, p, problems, "ClusterNetworkPolicy guard", row.want, row.problems)
		})
	}
}
