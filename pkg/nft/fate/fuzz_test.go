// SPDX-License-Identifier: Apache-2.0

package fate

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/nft/table"
)

// FuzzOf: however many ways lead through others' chains, each chain is examined once, and the result is that of following each of the ways.
// Three bytes are a rule: its chain, what it does, and how many chains further.
func FuzzOf(f *testing.F) {
	var ways []byte
	for chain := range byte(15) {
		for range 2 {
			ways = append(ways, chain, 3, 0)
		}
	}
	f.Add(ways, byte(0))
	f.Add([]byte{0, 3, 1, 0, 4, 0, 1, 2, 0, 2, 8, 0, 2, 1, 0}, byte(3))
	f.Fuzz(func(t *testing.T, rules []byte, doubt byte) {
		chains, n := map[string]Chain{"15": {}}, 0
		for ; len(rules) >= 3 && n < 200; rules, n = rules[3:], n+1 {
			at := int(rules[0] % 15)
			r := Rule{Conditional: rules[1]&8 != 0, May: May(rules[1] >> 4 % 5), Verdict: [...]table.VerdictKind{"", table.Accept, table.Return, table.Jump, table.Goto, table.Drop, "", table.Jump}[rules[1]%8]}
			if r.Verdict == table.Jump || r.Verdict == table.Goto {
				r.Target = fmt.Sprint(min(15, at+1+int(rules[2]%4)))
			}
			c := chains[fmt.Sprint(at)]
			c.Rules = append(c.Rules, r)
			chains[fmt.Sprint(at)] = c
		}
		p, looked := Packet{Doubt: May(doubt % 5)}, 0
		got := Of(func(name string) Chain { looked++; return chains[name] }, "0", p)
		if looked > 16+1 {
			t.Fatalf("%d looks at %d chains", looked, len(chains))
		}
		want := Passes
		if n <= 20 && slow(chains, "0", p) == Dropped {
			want = Dropped
		}
		if n <= 20 && got != want {
			t.Errorf("%d, one way after the other %d", got, want)
		}
	})
}

// slow follows every way.
func slow(chains map[string]Chain, name string, p Packet) Fate {
	may := false // it may have come back
	for _, r := range chains[name].Rules {
		all, let := r.isFor(p)
		switch {
		case !all && p.Doubt > 0 && let >= p.Doubt && r.Verdict == table.Return:
			may = true
			continue
		case !all && p.Doubt > 0 && let >= p.Doubt, all && r.Verdict == table.Accept:
			return Passes
		case !all, r.Verdict == "":
			continue
		case r.Verdict == table.Return:
			return Undecided
		}
		f := Dropped
		if r.Target != "" {
			f = slow(chains, r.Target, p)
		}
		switch {
		case f == Dropped && may:
			return Undecided
		case f != Undecided, r.Verdict == table.Goto:
			return f
		}
	}
	return Undecided
}
