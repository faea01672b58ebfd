// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/test/netns"
)

// TestBlocks: chains of others that drop all packets of workloads are found, whoever made them, and what is said to mend them does.
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
	const both, pods, from, to, replies = "from to pods", " pods", "from", "to", "ct state established,related accept"
	for _, c := range []struct {
		name, ruleset, want string
	}{
		{"forward policy", chain("inet", "forward", "drop"), both},
		{"forward policy of IPv4", chain("ip", "forward", "drop"), both},
		{"forward policy of IPv6", chain("ip6", "forward", "drop"), both},
		{"only answers pass", chain("inet", "forward", "drop", replies), both},
		{"answers by a map", chain("inet", "forward", "drop", "ct state vmap { established : accept, invalid : drop }"), both},
		{"a port passes", chain("inet", "forward", "drop", "tcp dport 80 accept", "meta l4proto icmp accept", "ct status dnat accept", "iif lo accept"), both},
		{"addresses pass", chain("inet", "forward", "drop", "ip saddr 192.168.0.0/16 accept", "ip daddr 192.168.0.0/16 accept"), "from to"},
		{"those of a set pass", chain("ip", "forward", "drop", "ip saddr { 10.0.0.1, 10.0.0.3 } accept"), "from to"},
		{"those of a mark pass", chain("ip", "forward", "drop", "meta mark 1 accept"), "from to"},
		{"workloads pass by a set", chain("inet", "forward", "drop", `iifname { "cali*", "docker0" } accept`, `oifname { "cali*", "docker0" } accept`), ""},
		{"workloads pass by a map", chain("inet", "forward", "drop", `iifname vmap { "cali*" : accept }`, `oifname vmap { "cali*" : accept }`), ""},
		{"some jump", chain("ip", "forward", "drop", "ip saddr 10.0.0.0/8 jump other"), "from to"},
		{"what comes from workloads passes", chain("inet", "forward", "drop", `iifname "cali*" accept`), to + pods},
		{"all passes", chain("inet", "forward", "drop", `iifname "cali*" accept`, `oifname "cali*" accept`), ""},
		{"rejected by a chain", chain("inet", "forward", "accept", `iifname "cali*" goto other`, "other reject"), from + pods},
		{"rejected by another link's", chain("inet", "forward", "accept", `iifname "tap*" reject`), ""},
		{"dropped by source", chain("inet", "forward", "accept", "ip saddr 10.0.0.0/8 drop"), ""},
		{"prerouting", chain("inet", "prerouting", "accept", `iifname != "eth0" drop`), from + pods},
		{"postrouting", chain("ip", "postrouting", "drop", `oifname "eth0" accept`), to + pods},
		{"output", chain("inet", "output", "drop", "oifname lo accept"), to},
		{"output, as hardened hosts have it", chain("inet", "output", "drop", replies, `oifname "cali*" accept`), ""},
		{"input", chain("inet", "input", "drop", "iif lo accept", "tcp dport 22 accept"), from},
		{"input, as hardened hosts have it", chain("inet", "input", "drop", replies, "tcp dport 22 accept"), ""},
		{"input, answers by a map", chain("inet", "input", "drop", "ct state vmap { established : accept, invalid : drop }"), ""},
		{"input by addresses", chain("inet", "input", "drop", "ip saddr 10.0.0.0/8 accept"), ""},
		{"no hook", "add table inet f; add chain inet f c; add rule inet f c drop", ""},
		{"another hook", "add table bridge f; add chain bridge f c { type filter hook forward priority 0; policy drop; }", ""},
		{"our own", strings.NewReplacer("inet f", "inet own").Replace(chain("inet", "forward", "drop")), ""},
	} {
		netns.Host(t, func() {
			f, err := Open()
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			nft(t, c.ruleset)
			got, err := f.Blocks("own", []string{"cali"})
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
				_, command, _ := strings.Cut(b.String(), ": run ")
				if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
					t.Errorf("%s: %s: %v: %s", c.name, command, err, out)
				}
			}
			if got, err := f.Blocks("own", []string{"cali"}); err != nil || got != nil {
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
		if b.Pods {
			words = append(words, "pods")
		}
	}
	return strings.Join(words, " ")
}
