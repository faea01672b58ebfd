// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
)

// words matches names that a command can contain.
var words = regexp.MustCompile(`^[\w./-]+ [\w./-]+$`)

// FuzzBlock: whatever rules and names others have, the text about them is one line, and no command in it is theirs.
func FuzzBlock(f *testing.F) {
	for _, name := range []string{"DOCKER-USER", "a'; reboot; '", "x\ny", "", "firewalld", "a b", "$(reboot)", "\u202e"} {
		f.Add(name, name, byte(2), []byte{0, 5, 1, 2, 3, 1, 1, 0})
		f.Add("filter", name, byte(0), []byte{0, 5})
	}
	f.Fuzz(func(t *testing.T, inTable, chain string, hook byte, rules []byte) {
		base := nfnl.BaseChain{Table: inTable, Name: chain, Hook: [...]string{"prerouting", "input", "forward", "output", "postrouting"}[hook%5], Drops: hook > 127}
		r := newReader(nil, base)
		r.err = errors.New("no more can be read")
		r.add("other", nil)
		var list []nfnl.ForeignRule
		for ; len(rules) >= 2 && len(list) < 50; rules = rules[2:] {
			rule := fate.Rule{Conditional: rules[0]&1 == 1, May: fate.May(rules[0] >> 1 % 5), Verdict: [...]table.VerdictKind{"", table.Accept, table.Return, table.Jump, table.Goto, table.Drop}[rules[1]%6]}
			if rule.Target = map[byte]string{3: "other", 4: chain}[rules[1]%6]; rules[1] > 127 {
				rule.Is = []fate.Is{{Field: fate.Field(rules[0] >> 4 % 7), Not: rules[1]&64 != 0, Bits: fate.Text(rules[:1])}}
			}
			list = append(list, nfnl.ForeignRule{Rule: rule})
		}
		r.add(chain, list)
		b := r.block("inet", Search{Prefixes: []string{"cali"}, Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Probe: [][2]netip.Addr{{netip.MustParseAddr("169.254.1.2"), netip.MustParseAddr("169.254.1.3")}}, VXLAN: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:4789")}})
		for _, text := range []string{b.Name(), b.String(), b.OfProbe()} {
			for _, c := range text {
				if !unicode.IsPrint(c) {
					t.Fatalf("%q", text)
				}
			}
			if strings.Contains(text, "nft 'insert") && !words.MatchString(inTable+" "+chain) {
				t.Fatalf("a command with the name: %s", text)
			}
		}
	})
}
