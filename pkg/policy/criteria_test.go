// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestCriteria asks single rules whether they match a packet for db.
func TestCriteria(t *testing.T) {
	const (
		udpDB    = "cali1>cali2 10.0.0.1>10.0.0.2 udp:40000>5432"
		stranger = "eth0>cali2 203.0.113.5>10.0.0.2 tcp:40000>5432"
		pingRed  = "cali1>cali2 10.0.0.1>10.0.0.2 icmp:5/1"
		toWeb    = "cali2>cali1 10.0.0.2>10.0.0.1 tcp:40000>8080"
	)
	for _, tt := range []struct {
		rule   string
		packet string
		want   bool
	}{
		{`{}`, toDB, true},
		{`{}`, toDB6, true},
		// protocol
		{`{"protocol": "tcp"}`, toDB, true},
		{`{"protocol": "tcp"}`, udpDB, false},
		{`{"protocol": 17}`, udpDB, true},
		{`{"!protocol": "tcp"}`, toDB, false},
		{`{"!protocol": "tcp"}`, udpDB, true},
		// ip_version
		{`{"ip_version": 4}`, toDB, true},
		{`{"ip_version": 4}`, toDB6, false},
		{`{"ip_version": 6}`, toDB6, true},
		// nets
		{`{"src_net": "10.0.0.0/24"}`, toDB, true},
		{`{"src_net": "10.0.1.0/24"}`, toDB, false},
		{`{"!src_net": "10.0.0.0/24"}`, toDB, false},
		{`{"!src_net": "10.0.1.0/24"}`, toDB, true},
		{`{"dst_net": "10.0.0.2"}`, toDB, true},
		{`{"!dst_net": "10.0.0.2"}`, toDB, false},
		{`{"src_nets": ["10.0.1.0/24", "10.0.0.0/24"]}`, toDB, true},
		{`{"!src_nets": ["10.0.1.0/24", "10.0.0.0/24"]}`, toDB, false},
		{`{"src_net": "10.0.1.0/24", "src_nets": ["10.0.0.0/24"]}`, toDB, true},
		{`{"src_net": "10.0.0.0/24", "src_nets": ["10.0.1.0/24"]}`, toDB, true},
		{`{"src_net": "10.0.1.0/24", "src_nets": ["10.0.2.0/24"]}`, toDB, false},
		{`{"!src_net": "10.0.1.0/24", "!src_nets": ["10.0.0.0/24"]}`, toDB, false},
		{`{"dst_net": "10.9.0.0/24", "dst_nets": ["10.0.0.2/32"]}`, toDB, true},
		{`{"src_net": "10.0.0.0/16", "!src_net": "10.0.0.1/32"}`, toDB, false},
		// A CIDR of the other family makes the rule not apply to this family.
		{`{"src_net": "fd00::/16"}`, toDB, false},
		{`{"!src_net": "fd00::/16"}`, toDB, false},
		{`{"src_net": "10.0.0.0/8"}`, toDB6, false},
		{`{"!dst_net": "10.0.0.0/8"}`, toDB6, false},
		{`{"src_nets": ["10.0.0.0/8", "fd00::/16"]}`, toDB, true},
		{`{"src_nets": ["10.0.0.0/8", "fd00::/16"]}`, toDB6, true},
		{`{"!src_nets": ["10.5.0.0/16", "fd00::/16"]}`, toDB, true},
		// So does icmp or icmpv6.
		{`{"protocol": "icmp"}`, pingDB, true},
		{`{"protocol": "icmpv6"}`, pingDB6, true},
		{`{"protocol": "icmpv6"}`, "cali1>cali2 10.0.0.1>10.0.0.2 58:0/0", false},
		{`{"protocol": "icmp"}`, "cali1>cali2 fd00::1>fd00::2 1:0/0", false},
		{`{"!protocol": "icmpv6"}`, toDB, false},
		{`{"!protocol": "icmp"}`, toDB, true},
		// ports
		{`{"protocol": "tcp", "dst_ports": [5432]}`, toDB, true},
		{`{"protocol": "tcp", "dst_ports": ["5000:6000"]}`, toDB, true},
		{`{"protocol": "tcp", "dst_ports": [80, "443"]}`, toDB, false},
		{`{"protocol": "tcp", "src_ports": ["32768:60999"]}`, toDB, true},
		{`{"protocol": "tcp", "!dst_ports": [5432]}`, toDB, false},
		{`{"protocol": "tcp", "!dst_ports": [80]}`, toDB, true},
		{`{"protocol": "tcp", "!src_ports": [40000]}`, toDB, false},
		{`{"protocol": "udp", "dst_ports": [5432]}`, toDB, false},
		{`{"protocol": "tcp", "dst_ports": [0]}`, toDB, false},
		{`{"protocol": "tcp", "dst_ports": ["0:65535"]}`, toDB, true},
		// named ports: of the endpoint that has the address
		{`{"protocol": "tcp", "dst_ports": ["sql"]}`, toDB, true},
		{`{"protocol": "tcp", "dst_ports": ["sql"]}`, toDB6, true},
		{`{"protocol": "udp", "dst_ports": ["sql"]}`, udpDB, false},
		{`{"protocol": "tcp", "dst_ports": ["http"]}`, toDB, false},
		{`{"protocol": "tcp", "dst_ports": ["nowhere"]}`, toDB, false},
		{`{"protocol": "tcp", "dst_ports": ["http", 5432]}`, toDB, true},
		{`{"protocol": "tcp", "!dst_ports": ["sql"]}`, toDB, false},
		{`{"protocol": "tcp", "!dst_ports": ["http"]}`, toDB, true},
		{`{"protocol": "tcp", "!dst_ports": ["nowhere"]}`, toDB, true},
		// tags and selectors, two sets: both must match
		{`{"src_tag": "opened"}`, toDB, true},
		{`{"src_tag": "opened"}`, stranger, false},
		{`{"src_tag": "other"}`, toDB, false},
		{`{"src_selector": "role == 'web'"}`, toDB, true},
		{`{"src_selector": "role == 'web'"}`, toDB6, true},
		{`{"src_selector": "role == 'far'"}`, farToDB, true},
		{`{"src_tag": "opened", "src_selector": "role == 'web'"}`, toDB, true},
		{`{"src_tag": "opened", "src_selector": "role == 'far'"}`, toDB, false},
		{`{"src_tag": "other", "src_selector": "role == 'web'"}`, toDB, false},
		{`{"dst_selector": "role == 'db'"}`, toDB, true},
		{`{"dst_tag": "opened"}`, toDB, false},
		{`{"!dst_tag": "opened"}`, toDB, true},
		{`{"!src_tag": "opened"}`, toDB, false},
		{`{"!src_tag": "opened", "!src_selector": "role == 'far'"}`, toDB, false},
		{`{"src_selector": ""}`, toDB, true},
		{`{"src_selector": "all()"}`, stranger, false},
		{`{"src_selector": "has(opened)"}`, toDB, true}, // tags are labels with an empty value
		// !src_selector matches sources that are none of Calico's, a selector with ! does not.
		{`{"!src_selector": "role == 'web'"}`, stranger, true},
		{`{"!src_selector": "role == 'web'"}`, toDB, false},
		{`{"src_selector": "!(role == 'web')"}`, stranger, false},
		{`{"src_selector": "!(role == 'web')"}`, farToDB, true},
		{`{"!src_selector": ""}`, stranger, true},
		// ICMP
		{`{"protocol": "icmp", "icmp_type": 8}`, pingDB, true},
		{`{"protocol": "icmp", "icmp_type": 0}`, pingDB, false},
		{`{"protocol": "icmpv6", "icmp_type": 128}`, pingDB6, true},
		{`{"protocol": "icmp", "icmp_type": 5, "icmp_code": 1}`, pingRed, true},
		{`{"protocol": "icmp", "icmp_type": 5, "icmp_code": 0}`, pingRed, false},
		{`{"protocol": "icmp", "!icmp_type": 8}`, pingDB, false},
		{`{"protocol": "icmp", "!icmp_type": 8}`, pingRed, true},
		// Negated together: all but that type with that code.
		{`{"protocol": "icmp", "!icmp_type": 5, "!icmp_code": 1}`, pingRed, false},
		{`{"protocol": "icmp", "!icmp_type": 5, "!icmp_code": 0}`, pingRed, true},
		{`{"protocol": "icmp", "!icmp_type": 8, "!icmp_code": 1}`, pingRed, true},
		// a rule that can hold for the other workload, too
		{`{"protocol": "tcp", "dst_ports": ["http"]}`, toWeb, true},
	} {
		_, st := stateOf(t, map[string]string{
			pol + "a": `{"selector": "has(role)", "order": 1, "types": ["inbound"], "inbound_rules": [` + tt.rule + `]}`,
			pol + "b": `{"selector": "", "order": 2, "types": ["inbound"], "inbound_rules": [{"action": "deny"}]}`,
		})
		r := Evaluate(testSettings, st, packet(t, tt.packet))
		if got := r.Verdict == Accept; got != tt.want {
			t.Errorf("%s matches %s: %v, want %v\n%v", tt.rule, tt.packet, got, tt.want, r.Trail)
		}
	}
}

// TestNotExpressed: a rule that can't be expressed drops what it could have
// matched, whatever its action, and nothing else.
func TestNotExpressed(t *testing.T) {
	kind, code := uint8(8), uint8(0)
	for _, tt := range []struct {
		name   string
		rule   Rule
		packet string
		want   Verdict
	}{
		{"set", Rule{Action: model.ActionAllow, Match: Criteria{SrcSets: []SetID{"s-gone"}}}, toDB, Drop},
		{"set, negated", Rule{Action: model.ActionLog, Not: Criteria{DstSets: []SetID{"s-gone"}}}, toDB, Drop},
		{"set, other protocol", Rule{Action: model.ActionAllow, Match: Criteria{Protocol: model.ProtocolUDP, SrcSets: []SetID{"s-gone"}}}, toDB, Accept},
		{"port set", Rule{Action: model.ActionAllow, Match: Criteria{Protocol: model.ProtocolTCP, DstPortSets: []SetID{"p-gone"}}}, toDB, Drop},
		{"port set, negated", Rule{Action: model.ActionAllow, Match: Criteria{Protocol: model.ProtocolTCP}, Not: Criteria{DstPortSets: []SetID{"p-gone"}}}, toDB, Drop},
		{"port set, negated, excluded otherwise", Rule{Action: model.ActionDeny, Match: Criteria{Protocol: model.ProtocolTCP}, Not: Criteria{DstPorts: []model.Port{{Min: 5432, Max: 5432}}, DstPortSets: []SetID{"p-gone"}}}, toDB, Accept},
		{"action", Rule{Action: "fly"}, toDB, Drop},
		{"action, other family", Rule{Action: "fly", IPVersion: 6}, toDB, Accept},
		{"ports without protocol", Rule{Action: model.ActionAllow, Match: Criteria{DstPorts: []model.Port{{Min: 1, Max: 2}}}}, toDB, Drop},
		{"type without protocol", Rule{Action: model.ActionAllow, Match: Criteria{ICMPType: &kind}}, pingDB, Drop},
		{"code without type", Rule{Action: model.ActionAllow, Match: Criteria{Protocol: model.ProtocolICMP, ICMPCode: &code}}, pingDB, Drop},
	} {
		_, st := stateOf(t, map[string]string{pol + "a": `{"selector": "role == 'db'"}`})
		id := RulesID{KindPolicy, "default", "a"}
		st.Rules[id] = &Rules{ID: id, Inbound: []Rule{tt.rule, {Action: model.ActionAllow}}}
		r := Evaluate(testSettings, st, packet(t, tt.packet))
		if r.Verdict != tt.want {
			t.Errorf("%s: %s, want %s\n%v", tt.name, r.Verdict, tt.want, r.Trail)
		}
		if told := strings.Contains(r.Trail[len(r.Trail)-1].String(), "cannot be expressed"); told != (tt.want == Drop) {
			t.Errorf("%s: %v", tt.name, r.Trail)
		}
	}
}
