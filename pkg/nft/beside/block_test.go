// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/test/netns"
)

// TestBlocks: chains of others that drop all packets of workloads are found, whichever program created them, and the advice repairs them.
func TestBlocks(t *testing.T) {
	chain := func(family, hook, policy string, rules ...string) string {
		text := fmt.Sprintf("add table %[1]s f; add chain %[1]s f c { type filter hook %[2]s priority 10; policy %[3]s; }; add chain %[1]s f other; ", family, hook, policy)
		for _, r := range rules {
			if !strings.HasPrefix(r, "other ") {
				r = "c " + r
			}
			text += fmt.Sprintf("add rule %s f %s; ", family, r)
		}
		return text
	}
	const both, pods, from, to, replies = "from pods4 pods6 to", " pods4 pods6", "from", "to", "ct state established,related accept"
	for _, c := range []struct {
		name, ruleset, want string
	}{
		{"forward policy", chain("inet", "forward", "drop"), both},
		{"forward policy of IPv4", chain("ip", "forward", "drop"), "from pods4 to"},
		{"forward policy of IPv6", chain("ip6", "forward", "drop"), "from pods6 to"},
		{"only answers pass", chain("inet", "forward", "drop", replies), both},
		{"answers by a map", chain("inet", "forward", "drop", "ct state vmap { established : accept, invalid : drop }"), both},
		{"a port passes", chain("inet", "forward", "drop", "tcp dport 80 accept", "meta l4proto icmp accept", "ct status dnat accept", "iif lo accept"), both},
		{"addresses pass", chain("inet", "forward", "drop", "ip saddr 192.168.0.0/16 accept", "ip daddr 192.168.0.0/16 accept"), "from pods6 to"},
		{"those of a set pass", chain("ip", "forward", "drop", "ip saddr { 10.0.0.1, 10.0.0.3 } accept"), "from to"},
		{"those of a mark pass", chain("ip", "forward", "drop", "meta mark 1 accept"), "from to"},
		{"workloads pass by a set", chain("inet", "forward", "drop", `iifname { "cali*", "docker0" } accept`, `oifname { "cali*", "docker0" } accept`), ""},
		{"workloads pass by a map", chain("inet", "forward", "drop", `iifname vmap { "cali*" : accept }`, `oifname vmap { "cali*" : accept }`), ""},
		{"some jump", chain("ip", "forward", "drop", "ip saddr 10.0.0.0/8 jump other"), "from pods4 to"},
		{"what comes from workloads passes", chain("inet", "forward", "drop", `iifname "cali*" accept`), "pods4 pods6 to"},
		{"all passes", chain("inet", "forward", "drop", `iifname "cali*" accept`, `oifname "cali*" accept`), ""},
		{"rejected by a chain", chain("inet", "forward", "accept", `iifname "cali*" goto other`, "other reject"), from + pods},
		{"rejected by another link's", chain("inet", "forward", "accept", `iifname "tap*" reject`), ""},
		{"dropped by source", chain("inet", "forward", "accept", "ip saddr 10.0.0.0/8 drop"), "from pods4"},
		{"dropped by destination", chain("ip", "forward", "accept", "ip daddr 10.64.0.0/10 drop"), "pods4 to"},
		{"of one family", chain("inet", "forward", "accept", "ip6 saddr fd00::/8 drop"), "from pods6"},
		{"of its protocol", chain("inet", "forward", "accept", "meta nfproto ipv6 drop"), "from pods6 to"},
		{"some of its addresses", chain("inet", "forward", "accept", "ip saddr 10.65.0.0/27 drop"), ""},
		{"one block of two", chain("inet", "forward", "accept", "ip saddr 10.66.0.0/16 drop"), "from"},
		{"other addresses", chain("inet", "forward", "accept", "ip saddr != 10.64.0.0/10 drop"), "probe4"},
		{"all but some addresses", chain("inet", "forward", "accept", "ip saddr != 192.168.0.0/16 drop"), "from pods4"},
		{"all but some to", chain("inet", "forward", "drop", "ip saddr 10.64.0.0/10 accept", "ip daddr 10.64.0.0/10 accept", "meta nfproto ipv6 accept"), "probe4"},
		{"they jump", chain("ip", "forward", "accept", "ip saddr 10.0.0.0/8 jump other", "other reject"), "from pods4"},
		{"some may return", chain("ip", "forward", "accept", "jump other", "other ip saddr 10.65.0.1 return", "other drop"), "from to"},
		{"a probe's", chain("inet", "forward", "accept", "ip daddr 169.254.0.0/16 drop"), "probe4"},
		{"a probe's, of IPv6", chain("ip6", "postrouting", "accept", "ip6 saddr fdca:11c0::/64 drop"), "probe6"},
		{"a dormant table", chain("inet", "forward", "drop") + "add table inet f { flags dormant; }", ""},
		{"VXLAN", chain("inet", "input", "drop", replies, "iif lo accept", "tcp dport 22 accept", "udp dport 53 accept", `iifname "cali*" accept`, "meta l4proto icmp accept"), "vxlan"},
		{"VXLAN, dropped", chain("ip", "input", "accept", "udp dport 4789 drop"), "vxlan"},
		{"VXLAN passes", chain("inet", "input", "drop", replies, "udp dport 4789 ct state new accept"), ""},
		{"VXLAN passes by a set", chain("inet", "input", "drop", replies, "udp dport { 53, 4789 } accept"), ""},
		{"VXLAN passes by source", chain("inet", "input", "drop", replies, "ip saddr 192.0.2.0/24 accept"), ""},
		{"VXLAN passes by an interface", chain("inet", "input", "drop", replies, `iifname "eth0" accept`), ""},
		{"VXLAN is new", chain("inet", "input", "drop", replies, "ct state new accept"), ""},
		{"VXLAN to another address", chain("inet", "input", "accept", "ip daddr != 192.0.2.1 drop"), ""},
		{"VXLAN to it may return", chain("inet", "input", "drop", replies, "jump other", "udp dport 4789 accept", "other fib daddr type local return", "other drop"), ""},
		{"VXLAN of IPv6", chain("ip6", "input", "drop", replies), ""},
		{"prerouting", chain("inet", "prerouting", "accept", `iifname != "eth0" drop`), from + pods},
		{"postrouting", chain("ip", "postrouting", "drop", `oifname "eth0" accept`), "pods4 to"},
		{"output", chain("inet", "output", "drop", "oifname lo accept"), to},
		{"output, as hardened hosts have it", chain("inet", "output", "drop", replies, `oifname "cali*" accept`), ""},
		{"input", chain("inet", "input", "drop", "iif lo accept", "tcp dport 22 accept"), "from vxlan"},
		{"input, as hardened hosts have it", chain("inet", "input", "drop", replies, "tcp dport 22 accept"), "vxlan"},
		{"input, answers by a map", chain("inet", "input", "drop", "ct state vmap { established : accept, invalid : drop }"), "vxlan"},
		{"input by addresses", chain("ip", "input", "drop", "ip saddr 10.0.0.0/8 accept"), ""},
		{"no hook", "add table inet f; add chain inet f c; add rule inet f c drop", ""},
		{"another hook", "add table bridge f; add chain bridge f c { type filter hook forward priority 0; policy drop; }", ""},
		{"our own", strings.NewReplacer("inet f", "inet own").Replace(chain("inet", "forward", "drop")), ""},
	} {
		search := Search{
			Own: "own", Prefixes: []string{"cali"}, VXLAN: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:4789")},
			Nets: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/26"), netip.MustParsePrefix("10.66.0.0/26"), netip.MustParsePrefix("fd65::/64")},
			Probe: [][2]netip.Addr{
				{netip.MustParseAddr("169.254.1.2"), netip.MustParseAddr("169.254.1.3")}, {netip.MustParseAddr("fdca:11c0::2"), netip.MustParseAddr("fdca:11c0::3")},
			},
		}
		netns.Host(t, func() {
			f, err := Open()
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			nft(t, c.ruleset)
			got, err := f.Blocks(search)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if diff := cmp.Diff(c.want, summary(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
			for _, b := range got {
				if b.Table != "f" || b.Chain != "c" {
					t.Errorf("%s: %+v", c.name, b)
				}
				text := b.String()
				if b.OnlyProbe(true) || b.OnlyProbe(false) {
					text = b.OfProbe()
				}
				_, command, _ := strings.Cut(text, ": run ")
				if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
					t.Errorf("%s: %s: %v: %s", c.name, command, err, out)
				}
			}
			if got, err := f.Blocks(search); err != nil || got != nil {
				t.Errorf("%s, mended: %+v, %v", c.name, got, err)
			}
		})
	}
}

func summary(blocks []Block) string {
	var words []string
	for _, b := range blocks {
		if b.From {
			words = append(words, "from")
		}
		if b.To {
			words = append(words, "to")
		}
		for word, is := range map[string]bool{
			"pods4": b.Pods4, "pods6": b.Pods6, "probe4": b.OnlyProbe(true), "probe6": b.OnlyProbe(false), "vxlan": b.VXLANPort != 0,
		} {
			if is {
				words = append(words, word)
			}
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// TestBlockText: the advice about a chain for the host's own packets opens none of its ports, or says so.
func TestBlockText(t *testing.T) {
	for _, c := range []struct {
		block Block
		want  string
	}{
		{Block{Family: "inet", Table: "f", Chain: "c", Hook: "input", From: true, VXLANPort: 4789, Prefixes: []string{"cali"}},
			`chain inet f c (hook input) drops packets from cali* and of other hosts' VXLAN: run nft 'insert rule inet f c iifname "cali*" ct state established,related accept' && nft 'insert rule inet f c udp dport 4789 accept'`},
		{Block{Family: "inet", Table: "firewalld", Chain: "c", Hook: "forward", To: true, Prefixes: []string{"cali"}},
			"chain inet firewalld c (hook forward) drops packets to cali* (without firewalld the host's own ports are open to everybody): run systemctl disable --now firewalld"},
	} {
		if diff := cmp.Diff(c.want, c.block.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
