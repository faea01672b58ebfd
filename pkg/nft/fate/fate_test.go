// SPDX-License-Identifier: Apache-2.0

package fate

import (
	"testing"

	"github.com/calico-go/calico/pkg/nft/table"
)

// TestOf: what counts is what becomes of all packets of workloads.
func TestOf(t *testing.T) {
	rule := func(v table.VerdictKind, names ...Name) Rule { return Rule{Names: names, Verdict: v} }
	to := func(v table.VerdictKind, target string, names ...Name) Rule {
		return Rule{Names: names, Verdict: v, Target: target}
	}
	some := Rule{Conditional: true}
	someOf := func(v table.VerdictKind) Rule { r := some; r.Verdict = v; return r }
	may := func(m May) []Rule {
		return []Rule{{Conditional: true, May: m, Verdict: table.Accept}, {Verdict: table.Drop}}
	}
	doubt := func(m May) Packet { return Packet{In: "cali", Doubt: m} }
	in, out := Packet{In: "cali"}, Packet{Out: "cali"}
	for name, c := range map[string]struct {
		drops bool
		rules []Rule
		other []Rule // of chain other
		p     Packet
		want  Fate
	}{
		"policy accept":                      {false, nil, nil, in, Passes},
		"policy drop":                        {true, nil, nil, in, Dropped},
		"some are accepted":                  {true, []Rule{someOf(table.Accept)}, nil, in, Dropped},
		"some are dropped":                   {false, []Rule{someOf(table.Drop)}, nil, in, Passes},
		"all are accepted":                   {true, []Rule{rule(table.Accept)}, nil, in, Passes},
		"all are dropped":                    {false, []Rule{rule("", Name{Text: "cali", Prefix: true}), rule(table.Drop)}, nil, out, Dropped},
		"from workloads, accepted":           {true, []Rule{rule(table.Accept, Name{Text: "cali", Prefix: true})}, nil, in, Passes},
		"to workloads, not of that":          {true, []Rule{rule(table.Accept, Name{Text: "cali", Prefix: true})}, nil, out, Dropped},
		"a shorter prefix":                   {false, []Rule{rule(table.Drop, Name{Text: "ca", Prefix: true})}, nil, in, Dropped},
		"a longer prefix":                    {false, []Rule{rule(table.Drop, Name{Text: "cali12", Prefix: true})}, nil, in, Passes},
		"one workload":                       {false, []Rule{rule(table.Drop, Name{Text: "cali1"})}, nil, in, Passes},
		"none but eth0":                      {false, []Rule{rule(table.Drop, Name{Text: "eth0", Not: true})}, nil, in, Dropped},
		"none but one workload":              {false, []Rule{rule(table.Drop, Name{Text: "cali1", Not: true})}, nil, in, Passes},
		"none but workloads":                 {false, []Rule{rule(table.Drop, Name{Text: "cali", Prefix: true, Not: true})}, nil, in, Passes},
		"another interface":                  {false, []Rule{rule(table.Drop, Name{Text: "docker0"})}, nil, in, Passes},
		"both interfaces":                    {false, []Rule{rule(table.Drop, Name{Text: "cali", Prefix: true}, Name{Text: "docker0", Out: true})}, nil, in, Passes},
		"a jump that drops":                  {false, []Rule{to(table.Jump, "other")}, []Rule{rule(table.Drop)}, in, Dropped},
		"a jump of some":                     {false, []Rule{{Conditional: true, Verdict: table.Jump, Target: "other"}}, []Rule{rule(table.Drop)}, in, Passes},
		"a jump that comes back":             {true, []Rule{to(table.Jump, "other"), rule(table.Accept)}, []Rule{rule(table.Return), rule(table.Drop)}, in, Passes},
		"a goto doesn't":                     {true, []Rule{to(table.Goto, "other"), rule(table.Accept)}, []Rule{rule(table.Return)}, in, Dropped},
		"a return in the hook":               {true, []Rule{rule(table.Return), rule(table.Accept)}, nil, in, Dropped},
		"a chain that isn't there":           {false, []Rule{to(table.Jump, "gone"), rule(table.Drop)}, nil, in, Dropped},
		"a circle, which the kernel forbids": {true, []Rule{to(table.Jump, "base")}, nil, in, Dropped},
		"answers, which don't count":         {false, may(Answers), nil, in, Dropped},
		"answers, which do":                  {false, may(Answers), nil, doubt(Answers), Passes},
		"of addresses, where answers count":  {false, may(Any), nil, doubt(Answers), Passes},
		"answers, where addresses count":     {false, may(Answers), nil, doubt(Any), Dropped},
		"a port, where answers count":        {false, may(Few), nil, doubt(Answers), Dropped},
		"answers of another interface": {false, []Rule{{Names: []Name{{Text: "docker0"}}, Conditional: true, May: Answers, Verdict: table.Accept}, {Verdict: table.Drop}},
			nil, doubt(Answers), Dropped},
		"accepted before all others are lost": {true, []Rule{rule(table.Accept, Name{Text: "cali", Prefix: true, Out: true}), rule(table.Drop)}, nil, out, Passes},
	} {
		got := Of(map[string]Chain{"base": {Drops: c.drops, Rules: c.rules}, "other": {Rules: c.other}}, "base", c.p)
		if got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
