// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// policyRows are the cases of a NetworkPolicy in namespace shop. want is what is stored, without order and with " for
// \"; problems are the fields.
var policyRows = []struct{ name, spec, want, problems string }{
	{"no types, nothing", `{}`,
		`selector: calico/k8s_ns == "shop"; inbound`, ""},
	{"no types, ingress", `ingress: [{}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow"}`, ""},
	{"no types, egress rules", `egress: [{}]`,
		`selector: calico/k8s_ns == "shop"; inbound; outbound {"action":"allow"}`, ""},
	{"no types, empty egress", `egress: []`,
		`selector: calico/k8s_ns == "shop"; inbound`, ""},
	{"types say more than rules", `policyTypes: [Ingress, Egress]`,
		`selector: calico/k8s_ns == "shop"; inbound; outbound`, ""},
	{"rules of others are ignored", "policyTypes: [Egress]\ningress: [{from: [{}]}]",
		`selector: calico/k8s_ns == "shop"; outbound`, ""},
	{"a type of the next version isolates", "policyTypes: [Ingress, Forward]\ningress: [{}]\negress: [{}]",
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow"}; outbound {"action":"allow"}`, "spec.policyTypes[1]"},
	{"subject by labels", `podSelector: {matchLabels: {b: x, a: ""}}`,
		`selector: calico/k8s_ns == "shop" && a == "" && b == "x"; inbound`, ""},
	{"subject by expressions", `podSelector: {matchExpressions: [{key: a, operator: In, values: [x, w]}, {key: example.com/b, operator: NotIn, values: [z]}, {key: c, operator: Exists}, {key: d, operator: DoesNotExist}]}`,
		`selector: calico/k8s_ns == "shop" && a in {"x", "w"} && example.com/b not in {"z"} && has(c) && !has(d); inbound`, ""},
	{"values that no label can have", `podSelector: {matchLabels: {z: 'q"q'}, matchExpressions: [{key: a, operator: In, values: [x, "a b", '"']}, {key: b, operator: In, values: ["-"]}, {key: c, operator: NotIn, values: ["ä"]}]}`,
		`selector: calico/k8s_ns == "shop" && z in {} && a in {"x"} && b in {} && c not in {}; inbound`, ""},
	{"subject of the next version", "podSelector: {matchExpressions: [{key: a, operator: Like, values: [x]}, {key: b, operator: Exists}]}\ningress: [{}]",
		`selector: calico/k8s_ns == "shop" && has(b); inbound`, "spec.podSelector.matchExpressions[0]"},
	{"subject by a label that pods don't have from themselves", "podSelector: {matchLabels: {projectcalico.org/x: y}}\ningress: [{}]",
		`selector: calico/k8s_ns == "shop"; inbound`, "spec.podSelector.matchLabels"},
	{"from absent, or empty", `ingress: [{from: []}, {from: null}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow"} {"action":"allow"}`, ""},
	{"a peer that says nothing", `ingress: [{from: [{}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound`, "spec.ingress[0].from[0]"},
	{"a peer that says nothing beside one that does", `ingress: [{from: [{}, {podSelector: {}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow","src_selector":"calico/k8s_ns == "shop""}`, "spec.ingress[0].from[0]"},
	{"podSelector", `ingress: [{from: [{podSelector: {matchLabels: {a: x}}}, {podSelector: {}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow","src_selector":"calico/k8s_ns == "shop" && a == "x""} {"action":"allow","src_selector":"calico/k8s_ns == "shop""}`, ""},
	{"namespaceSelector", `ingress: [{from: [{namespaceSelector: {}}, {namespaceSelector: {matchLabels: {team: x}}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow","src_selector":"has(calico/k8s_ns)"} {"action":"allow","src_selector":"has(calico/k8s_ns) && k8s_ns/label/team == "x""}`, ""},
	{"namespaces by what they don't have", `ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}, {key: projectcalico.org/x, operator: NotIn, values: [w]}]}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow","src_selector":"has(calico/k8s_ns) && has(k8s_ns/label/kubernetes.io/metadata.name) && !has(k8s_ns/label/team) && k8s_ns/label/projectcalico.org/x not in {"w"}"}`, ""},
	{"both in a peer", `egress: [{to: [{namespaceSelector: {matchLabels: {team: x}}, podSelector: {matchLabels: {a: w}}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound; outbound {"action":"allow","dst_selector":"has(calico/k8s_ns) && k8s_ns/label/team == "x" && a == "w""}`, ""},
	{"a peer by what is no label, or no operator", `ingress: [{from: [{podSelector: {matchExpressions: [{key: "a b", operator: DoesNotExist}]}}, {podSelector: {matchExpressions: [{key: a, operator: NotIn}]}}, {namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [x]}]}}, {podSelector: {matchExpressions: [{key: calico/k8s_ns, operator: DoesNotExist}]}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound`, "spec.ingress[0].from[0].podSelector.matchExpressions[0] spec.ingress[0].from[1].podSelector.matchExpressions[0] spec.ingress[0].from[2].namespaceSelector.matchExpressions[0] spec.ingress[0].from[3].podSelector.matchExpressions[0]"},
	{"ipBlock", `ingress: [{from: [{ipBlock: {cidr: 10.1.2.3/8, except: [10.01.0.0/16, 10.2.0.0/16]}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow","src_net":"10.0.0.0/8","!src_nets":["10.1.0.0/16","10.2.0.0/16"]}`, ""},
	{"ipBlock of IPv6, all of IPv4", `egress: [{to: [{ipBlock: {cidr: "2001:db8::1/32"}}, {ipBlock: {cidr: 000.0.0.0/00}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound; outbound {"action":"allow","dst_net":"2001:db8::/32"} {"action":"allow","dst_net":"0.0.0.0/0"}`, ""},
	{"ipBlock that is none", `egress: [{to: [{ipBlock: {}}, {ipBlock: {cidr: 10.0.0.1}}, {ipBlock: {cidr: "::ffff:10.0.0.0/104"}}, {ipBlock: {cidr: 10.0.0.0/8, except: [x]}}, {ipBlock: {cidr: 10.0.0.0/8, except: ["fd00::/8"]}}, {ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound; outbound`, "spec.egress[0].to[0].ipBlock.cidr spec.egress[0].to[1].ipBlock.cidr spec.egress[0].to[2].ipBlock.cidr spec.egress[0].to[3].ipBlock.except[0] spec.egress[0].to[4].ipBlock.except[0] spec.egress[0].to[5]"},
	{"ports absent, empty, of nothing, and of nothing and 80", `ingress: [{ports: []}, {ports: [{}]}, {ports: [{}, {port: 80}]}, {ports: [{port: 80}, {}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow"} {"action":"allow","protocol":"tcp"} {"action":"allow","protocol":"tcp"} {"action":"allow","protocol":"tcp"}`, ""},
	{"a rule for each protocol and peer", `egress: [{ports: [{port: 80}, {protocol: UDP, port: 53}, {port: 443}, {protocol: SCTP}, {port: 80}], to: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound; outbound` +
			` {"action":"allow","protocol":"tcp","dst_selector":"calico/k8s_ns == "shop"","dst_ports":[80,443]}` +
			` {"action":"allow","protocol":"udp","dst_selector":"calico/k8s_ns == "shop"","dst_ports":[53]}` +
			` {"action":"allow","protocol":"sctp","dst_selector":"calico/k8s_ns == "shop""}` +
			` {"action":"allow","protocol":"tcp","dst_net":"10.0.0.0/8","dst_ports":[80,443]}` +
			` {"action":"allow","protocol":"udp","dst_net":"10.0.0.0/8","dst_ports":[53]}` +
			` {"action":"allow","protocol":"sctp","dst_net":"10.0.0.0/8"}`, ""},
	{"named ports", `ingress: [{ports: [{port: web}, {port: 80}, {protocol: UDP, port: dns}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow","protocol":"tcp","dst_ports":["web",80]} {"action":"allow","protocol":"udp","dst_ports":["dns"]}`, ""},
	{"a named port of pods in a block", `egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: web}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound; outbound {"action":"allow","protocol":"tcp","dst_net":"10.0.0.0/8","dst_ports":["web"]}`, ""},
	{"port and endPort", `ingress: [{ports: [{port: 80, endPort: 90}, {port: 7, endPort: 7}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow","protocol":"tcp","dst_ports":["80:90",7]}`, ""},
	{"ports that are none", `ingress: [{ports: [{port: 0}, {port: 65536}, {port: -1}, {port: web, endPort: 90}, {port: 90, endPort: 80}, {endPort: 80}, {port: 1, endPort: 65536}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound`, "spec.ingress[0].ports[0] spec.ingress[0].ports[1] spec.ingress[0].ports[2] spec.ingress[0].ports[3] spec.ingress[0].ports[4] spec.ingress[0].ports[5] spec.ingress[0].ports[6]"},
	{"names and protocols that are none", `ingress: [{ports: [{port: "80"}, {port: ""}, {port: "a b"}, {port: "1:2"}, {protocol: tcp}, {protocol: ICMP}, {protocol: "", port: 1}, {port: 443}]}]`,
		`selector: calico/k8s_ns == "shop"; inbound {"action":"allow","protocol":"tcp","dst_ports":[443]}`, "spec.ingress[0].ports[0] spec.ingress[0].ports[1] spec.ingress[0].ports[2] spec.ingress[0].ports[3] spec.ingress[0].ports[4] spec.ingress[0].ports[5] spec.ingress[0].ports[6]"},
	{"null everywhere", "podSelector: null\nuntold: 1\ningress: null\negress: null\npolicyTypes: null",
		`selector: calico/k8s_ns == "shop"; inbound`, ""},
}

func TestPolicy(t *testing.T) {
	for _, row := range policyRows {
		t.Run(row.name, func(t *testing.T) {
			np := &networkingv1.NetworkPolicy{}
			np.Namespace, np.Name = "shop", "web"
			if err := yaml.Unmarshal([]byte(row.spec), &np.Spec); err != nil {
				t.Fatal(err)
			}
			key, p, problems := kubepolicy.Policy(np)
			if want := (model.PolicyKey{Tier: "default", Policy: "knp.shop.web"}); key != want {
				t.Errorf("key %v, want %v", key, want)
			}
			if p.Order == nil || *p.Order != 1000 {
				t.Errorf("order %v, want 1000", p.Order)
			}
			check(t, key.Tier, p, problems, "NetworkPolicy shop/web", "default "+row.want, row.problems)
		})
	}
}

func check(t *testing.T, tier string, p model.Policy, problems []kubepolicy.Problem, object, want, wantProblems string) {
	t.Helper()
	if d := cmp.Diff(want, tier+" "+text(t, p)); d != "" {
		t.Errorf("what is stored, -want +got:\n%s", d)
	}
	var fields []string
	for _, p := range problems {
		if p.Object != object || p.Reason == "" || p.Remedy == "" {
			t.Errorf("problem %+v: want one of %s, with a reason and a remedy", p, object)
		}
		fields = append(fields, p.Field)
	}
	if d := cmp.Diff(wantProblems, strings.Join(fields, " ")); d != "" {
		t.Errorf("problems, -want +got:\n%s\n%v", d, problems)
	}
}

// text is a policy as rows have it, from what is stored.
func text(t *testing.T, p model.Policy) string {
	t.Helper()
	roundTrip(t, p)
	out := "selector: " + p.Selector
	for _, d := range []struct {
		direction model.Direction
		rules     []model.Rule
	}{{model.Inbound, p.Inbound}, {model.Outbound, p.Outbound}} {
		if !p.Applies(d.direction) {
			if len(d.rules) > 0 {
				t.Errorf("%d rules %s, where it doesn't decide", len(d.rules), d.direction)
			}
			continue
		}
		out += "; " + string(d.direction)
		for _, r := range d.rules {
			data, err := model.FormatValue(model.Rules{Inbound: []model.Rule{r}})
			if err != nil {
				t.Fatal(err)
			}
			s := strings.TrimSuffix(strings.TrimPrefix(string(data), `{"inbound_rules":[`), `],"outbound_rules":[]}`)
			out += " " + strings.ReplaceAll(s, `\"`, `"`)
		}
	}
	return out
}

// roundTrip stores a policy and reads it.
func roundTrip(t *testing.T, p model.Policy) {
	t.Helper()
	data, err := model.FormatValue(p)
	if err != nil {
		t.Fatalf("format: %v", err)
	}
	read, err := model.ParseValue(model.PolicyKey{}, data)
	if err != nil {
		t.Fatalf("parse %s: %v", data, err)
	}
	again, err := model.FormatValue(read)
	if err != nil || string(again) != string(data) {
		t.Fatalf("format of what was parsed: %v\n%s\n%s", err, data, again)
	}
}

func TestPolicyOfNoNamespace(t *testing.T) {
	for _, ns := range []string{"", `a" || all() || a == "`, "A"} {
		np := &networkingv1.NetworkPolicy{}
		np.Namespace, np.Name = ns, "web"
		_, p, _ := kubepolicy.Policy(np)
		if d := cmp.Diff("selector: calico/k8s_ns in {}; inbound", text(t, p)); d != "" {
			t.Errorf("namespace %q, -want +got:\n%s", ns, d)
		}
	}
}
