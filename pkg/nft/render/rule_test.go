// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

func rendered(list []table.Rule) string {
	var b strings.Builder
	for _, r := range list {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}

// TestRules covers each sentence of the specification about rules.
func TestRules(t *testing.T) {
	tcp, icmp4, icmp6 := model.ProtocolTCP, model.ProtocolICMP, model.ProtocolICMPv6
	port := func(list ...uint16) (out []model.Port) {
		for _, p := range list {
			out = append(out, model.Port{Min: p, Max: p})
		}
		return out
	}
	allow := func(match, not policy.Criteria) policy.Rule {
		return policy.Rule{Action: model.ActionAllow, Match: match, Not: not}
	}
	none := policy.Criteria{}
	const ok = " counter goto allow comment \"rule\"\n"
	const no = " counter drop comment \"rule, cannot be expressed: "
	for _, c := range []struct {
		name string
		rule policy.Rule
		want string
	}{
		{"anything", allow(none, none), strings.TrimPrefix(ok, " ")},
		{"deny", policy.Rule{Action: model.ActionDeny}, "counter drop comment \"rule\"\n"},
		{"next tier", policy.Rule{Action: model.ActionNextTier}, "counter goto next-tier comment \"rule\"\n"},
		{"log goes on", policy.Rule{Action: model.ActionLog}, "counter log prefix \"calico-packet: \" log prefix \"calico-packet\" group 2 comment \"rule\"\n"},
		{"log prefix on any action, 27 characters", policy.Rule{Action: model.ActionDeny, LogPrefix: "a prefix\n that is much too long"},
			"counter log prefix \"a_prefix__that_is_much_too_: \" log prefix \"a_prefix__that_is_much_too_\" group 2 drop comment \"rule\"\n"},
		{"IP version", policy.Rule{Action: model.ActionAllow, IPVersion: 6}, "meta nfproto ipv6" + ok},
		{"protocol", allow(policy.Criteria{Protocol: tcp}, none), "meta l4proto tcp" + ok},
		{"other protocol", allow(none, policy.Criteria{Protocol: 47}), "meta l4proto != 47" + ok},
		{"ICMP is of one version", allow(policy.Criteria{Protocol: icmp4}, none), "meta nfproto ipv4 meta l4proto icmp" + ok},
		{"negated ICMP too", allow(none, policy.Criteria{Protocol: icmp6}), "meta nfproto ipv6 meta l4proto != ipv6-icmp" + ok},
		{"type and code", allow(policy.Criteria{Protocol: icmp4, ICMPType: byteOf(3), ICMPCode: byteOf(4)}, none),
			"icmp type destination-unreachable icmp code frag-needed" + ok},
		{"negated type and code are one", allow(policy.Criteria{Protocol: icmp4}, policy.Criteria{ICMPType: byteOf(3), ICMPCode: byteOf(4)}),
			"icmp type . icmp code != { destination-unreachable . frag-needed }" + ok},
		{"negated type", allow(policy.Criteria{Protocol: icmp6}, policy.Criteria{ICMPType: byteOf(128)}), "icmpv6 type != echo-request" + ok},
		{"net", allow(policy.Criteria{SrcNets: cidrs("10.1.2.3/8")}, none), "ip saddr 10.0.0.0/8" + ok},
		{"net of the other version", allow(policy.Criteria{SrcNets: cidrs("fd00::/8"), DstNets: cidrs("10.0.0.0/8")}, none), ""},
		{"all nets", allow(policy.Criteria{SrcNets: cidrs("0.0.0.0/0")}, none), "meta nfproto ipv4" + ok},
		{"both halves of all nets", allow(policy.Criteria{SrcNets: cidrs("128.0.0.0/1", "0.0.0.0/2", "64.0.0.0/2")}, none), "meta nfproto ipv4" + ok},
		{"neither half of all nets", allow(none, policy.Criteria{SrcNets: cidrs("::/1", "8000::/1")}), ""},
		{"not all nets", allow(none, policy.Criteria{SrcNets: cidrs("0.0.0.0/0")}), ""},
		{"nets", allow(policy.Criteria{DstNets: cidrs("10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "192.0.2.1/32", "fd00::/8")}, none),
			"ip daddr 10.0.0.0/8" + ok + "ip daddr 192.0.2.1" + ok + "ip6 daddr fd00::/8" + ok},
		{"many nets", allow(policy.Criteria{DstNets: cidrs("10.0.0.0/8", "172.16.0.0/12", "192.0.2.0/31", "192.0.2.2/32", "198.51.100.1/32", "203.0.113.0/24")}, none),
			"ip daddr { 10.0.0.0/8, 172.16.0.0/12, 192.0.2.0-192.0.2.2, 198.51.100.1, 203.0.113.0/24 }" + ok},
		{"none of nets", allow(none, policy.Criteria{SrcNets: cidrs("10.0.0.0/8", "192.0.2.1/32")}), "ip saddr != 10.0.0.0/8 ip saddr != 192.0.2.1" + ok},
		{"in both sets", allow(policy.Criteria{SrcSets: []policy.SetID{"a", "b"}}, none), "ip saddr @s4-a ip saddr @s4-b" + ok + "ip6 saddr @s6-a ip6 saddr @s6-b" + ok},
		{"in no set", policy.Rule{Action: model.ActionAllow, IPVersion: 4, Not: policy.Criteria{DstSets: []policy.SetID{"a", "b"}}}, "ip daddr != @s4-a ip daddr != @s4-b" + ok},
		{"in a set with networks", allow(policy.Criteria{SrcSets: []policy.SetID{"a", "nets"}}, none), "ip saddr @s4-a ip saddr @s4-nets" + ok + "ip saddr @s4-a ip saddr @n4-nets" + ok +
			"ip6 saddr @s6-a ip6 saddr @s6-nets" + ok},
		{"in sets with networks at both ends", policy.Rule{Action: model.ActionAllow, IPVersion: 4, Match: policy.Criteria{SrcSets: []policy.SetID{"nets"}, DstSets: []policy.SetID{"nets2"}}},
			"ip saddr @s4-nets ip daddr @s4-nets2" + ok + "ip saddr @s4-nets ip daddr @n4-nets2" + ok + "ip saddr @n4-nets ip daddr @s4-nets2" + ok + "ip saddr @n4-nets ip daddr @n4-nets2" + ok},
		{"in no set with networks", policy.Rule{Action: model.ActionAllow, IPVersion: 4, Not: policy.Criteria{DstSets: []policy.SetID{"nets"}}}, "ip daddr != @s4-nets ip daddr != @n4-nets" + ok},
		{"logged once by a set with networks", policy.Rule{Action: model.ActionLog, LogPrefix: "x", IPVersion: 4, Match: policy.Criteria{SrcSets: []policy.SetID{"nets"}}},
			"ip saddr @s4-nets counter log prefix \"x: \" log prefix \"x\" group 2 comment \"rule\"\n" +
				"ip saddr != @s4-nets ip saddr @n4-nets counter log prefix \"x: \" log prefix \"x\" group 2 comment \"rule\"\n"},
		{"positive and negated", policy.Rule{Action: model.ActionAllow, IPVersion: 4, Match: policy.Criteria{SrcSets: []policy.SetID{"a"}}, Not: policy.Criteria{SrcNets: cidrs("10.0.0.0/8")}},
			"ip saddr @s4-a ip saddr != 10.0.0.0/8" + ok},
		{"port", allow(policy.Criteria{Protocol: tcp, DstPorts: port(80)}, none), "tcp dport 80" + ok},
		{"ports", allow(policy.Criteria{Protocol: tcp, DstPorts: append(port(80, 443, 81), model.Port{Min: 8000, Max: 65535})}, none),
			"tcp dport 80-81" + ok + "tcp dport 443" + ok + "tcp dport 8000-65535" + ok},
		{"many ports", allow(policy.Criteria{Protocol: tcp, DstPorts: port(1, 3, 5, 7, 9)}, none), "tcp dport { 1, 3, 5, 7, 9 }" + ok},
		{"none of ports", allow(policy.Criteria{Protocol: tcp}, policy.Criteria{SrcPorts: port(80, 443)}), "tcp sport != 80 tcp sport != 443" + ok},
		{"port or named port", policy.Rule{Action: model.ActionAllow, IPVersion: 4, Match: policy.Criteria{Protocol: tcp, DstPorts: port(80), DstPortSets: []policy.SetID{"p"}}},
			"meta nfproto ipv4 tcp dport 80" + ok + "ip daddr . meta l4proto . tcp dport @p4-p" + ok},
		{"logged once", policy.Rule{Action: model.ActionLog, LogPrefix: "x", IPVersion: 4, Match: policy.Criteria{Protocol: tcp, DstPorts: port(80), DstPortSets: []policy.SetID{"p"}}},
			"meta nfproto ipv4 tcp dport 80 counter log prefix \"x: \" log prefix \"x\" group 2 comment \"rule\"\n" +
				"tcp dport != 80 ip daddr . meta l4proto . tcp dport @p4-p counter log prefix \"x: \" log prefix \"x\" group 2 comment \"rule\"\n"},
		{"named port not", policy.Rule{Action: model.ActionAllow, IPVersion: 4, Match: policy.Criteria{Protocol: tcp}, Not: policy.Criteria{SrcPortSets: []policy.SetID{"p"}}},
			"ip saddr . meta l4proto . tcp sport != @p4-p" + ok},
		{"ports of a service", policy.Rule{Action: model.ActionAllow, IPVersion: 4, Match: policy.Criteria{DstPortSets: []policy.SetID{"p"}}}, "ip daddr . meta l4proto . th dport @p4-p" + ok},
		{"ports without protocol", allow(policy.Criteria{SrcNets: cidrs("10.0.0.0/8"), DstPorts: port(80)}, none), "ip saddr 10.0.0.0/8" + no + "protocol any has no ports\"\n"},
		{"set that isn't there", allow(policy.Criteria{SrcNets: cidrs("10.0.0.0/8"), SrcSets: []policy.SetID{"gone"}}, none), "ip saddr 10.0.0.0/8" + no + "set gone is not there\"\n"},
		{"unknown action", policy.Rule{Action: "pray", IPVersion: 4}, "meta nfproto ipv4" + no + "action 'pray' is unknown\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := settings()
			s.FlowLogGroup = 2
			x := Renderer{Settings: s, Known: func(id policy.SetID) bool { return id != "gone" }, expand: maxExpand, Fits: nfnl.Fits}
			x.Nets = func(id policy.SetID, version int) bool { return strings.HasPrefix(string(id), "nets") && version == 4 }
			got := rendered(x.rule(c.rule, func(why string) string { return "rule" + why }))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestInvalidAndMissingDeny(t *testing.T) {
	x := Renderer{Settings: settings(), Fits: nfnl.Fits}
	want := "\tchain in-policy-p {\n\t\tcomment \"policy p, inbound\"\n\t\tcounter drop comment \"policy p: field action is unknown\"\n\t}\n"
	if got := x.Rules(policyID("p"), &policy.Rules{Invalid: "field action is unknown"}, model.Inbound).String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	want = "\tchain out-profile-p {\n\t\tcomment \"profile p, outbound\"\n\t\tcounter drop comment \"profile p: it is not there\"\n\t}\n"
	if got := x.Rules(profileID("p"), nil, model.Outbound).String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestKubernetesKnowsNoNetworks: what pods and hosts are is all that Kubernetes' policies look up.
func TestKubernetesKnowsNoNetworks(t *testing.T) {
	x := Renderer{Settings: settings(), Known: func(policy.SetID) bool { return true }, Nets: func(policy.SetID, int) bool { return true }, Fits: nfnl.Fits}
	r := &policy.Rules{Inbound: []policy.Rule{{Action: model.ActionAllow, Match: policy.Criteria{SrcSets: []policy.SetID{"a"}}, Not: policy.Criteria{DstSets: []policy.SetID{"b"}}}}}
	for id, want := range map[policy.RulesID]bool{policyID("web"): true, policyID("knp.a.web"): false, tierID("kube-admin", "kcnp.web"): false, profileID("knp.a"): true, policyID("a/knp.web"): true} {
		if got := strings.Contains(x.Rules(id, r, model.Inbound).String(), "@n4-"); got != want {
			t.Errorf("%s looks up networks: %t, want %t", id, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{"", "web", "web_x", "web x", "web/x", "wéb", "\x00", "\xff", "a\nb", `"`, strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 1024), "web_x/0123456789abcdef"} {
		got := RulesChain(policyID(name), model.Inbound)
		if other, dup := seen[got]; dup {
			t.Errorf("%q and %q are both %q", name, other, got)
		}
		seen[got] = name
		if len(got) > 127 || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") != "" {
			t.Errorf("%q becomes %q", name, got)
		}
		if c := Comment("policy "+name, strings.Repeat(" rule 7", 30)); len(c) > table.MaxComment || strings.ContainsAny(c, "\"\n\\") {
			t.Errorf("comment of %q is %q", name, c)
		}
	}
}

// TestTooLong: a rule that is too long, which the data model never accepts, drops what a part of it matches.
func TestTooLong(t *testing.T) {
	r := policy.Rule{Action: model.ActionAllow, IPVersion: 4, Match: policy.Criteria{Protocol: model.ProtocolTCP, SrcNets: cidrs("10.0.0.0/8")}}
	for i := range 200 {
		r.Not.SrcSets = append(r.Not.SrcSets, policy.SetID(fmt.Sprint(i)))
	}
	x := Renderer{Settings: settings(), Known: func(policy.SetID) bool { return true }, expand: maxExpand, Fits: nfnl.Fits}
	got := x.rule(r, func(why string) string { return "rule" + why })
	if len(got) != 1 || !nfnl.Fits(got[0].Do...) {
		t.Fatalf("got %v", got)
	}
	text := got[0].String()
	for _, want := range []string{"meta l4proto tcp ip saddr 10.0.0.0/8 ip saddr != @s4-0 ", "counter drop", `comment "rule, cannot be expressed: it is too long"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}
