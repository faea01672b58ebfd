// SPDX-License-Identifier: Apache-2.0

package fate

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/nft/table"
)

// TestOf: only the fate of all packets of workloads counts.
func TestOf(t *testing.T) {
	rule := func(v table.VerdictKind, is ...Is) Rule { return Rule{Is: is, Verdict: v} }
	to := func(v table.VerdictKind, target string, is ...Is) Rule {
		return Rule{Is: is, Verdict: v, Target: target}
	}
	some := Rule{Conditional: true}
	someOf := func(v table.VerdictKind) Rule { r := some; r.Verdict = v; return r }
	may := func(m May) []Rule {
		return []Rule{{Conditional: true, May: m, Verdict: table.Accept}, {Verdict: table.Drop}}
	}
	doubt := func(m May) Packet { return Packet{Is: Fields{InName: Text("cali")}, Doubt: m} }
	at := func(f Field, prefix string) Is { return Is{Field: f, Bits: Prefix(netip.MustParsePrefix(prefix))} }
	not := func(i Is) Is { i.Not = true; return i }
	from := Packet{Is: Fields{InName: Text("cali"), Family: Text("\x02"), Src: Prefix(netip.MustParsePrefix("10.65.0.0/26"))}}
	udp := Packet{Is: Fields{Protocol: Text("\x11"), DstPort: Text("\x12\xb5")}, Others: []Bits{Text("lo\x00"), Text("cali")}, Doubt: Few, New: true}
	protocol := func(n string) Is { return Is{Field: Protocol, Bits: Text(n)} }
	port := func(n string) Is { return Is{Field: DstPort, Bits: Text(n)} }
	in, out := Packet{Is: Fields{InName: Text("cali")}}, Packet{Is: Fields{OutName: Text("cali")}}
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
		"all are dropped":                    {false, []Rule{rule("", Is{Bits: Text("cali")}), rule(table.Drop)}, nil, out, Dropped},
		"from workloads, accepted":           {true, []Rule{rule(table.Accept, Is{Bits: Text("cali")})}, nil, in, Passes},
		"to workloads, not of that":          {true, []Rule{rule(table.Accept, Is{Bits: Text("cali")})}, nil, out, Dropped},
		"a shorter prefix":                   {false, []Rule{rule(table.Drop, Is{Bits: Text("ca")})}, nil, in, Dropped},
		"a longer prefix":                    {false, []Rule{rule(table.Drop, Is{Bits: Text("cali12")})}, nil, in, Passes},
		"one workload":                       {false, []Rule{rule(table.Drop, Is{Bits: Text("cali1\x00")})}, nil, in, Passes},
		"none but eth0":                      {false, []Rule{rule(table.Drop, Is{Not: true, Bits: Text("eth0\x00")})}, nil, in, Dropped},
		"none but one workload":              {false, []Rule{rule(table.Drop, Is{Not: true, Bits: Text("cali1\x00")})}, nil, in, Passes},
		"none but workloads":                 {false, []Rule{rule(table.Drop, Is{Not: true, Bits: Text("cali")})}, nil, in, Passes},
		"another interface":                  {false, []Rule{rule(table.Drop, Is{Bits: Text("docker0\x00")})}, nil, in, Passes},
		"both interfaces":                    {false, []Rule{rule(table.Drop, Is{Bits: Text("cali")}, Is{Field: OutName, Bits: Text("docker0\x00")})}, nil, in, Passes},
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
		"answers of another interface": {false, []Rule{{Is: []Is{{Bits: Text("docker0\x00")}}, Conditional: true, May: Answers, Verdict: table.Accept}, {Verdict: table.Drop}},
			nil, doubt(Answers), Dropped},
		"from around its addresses":           {false, []Rule{rule(table.Drop, at(Src, "10.65.0.0/16"))}, nil, from, Dropped},
		"from some of its addresses":          {false, []Rule{rule(table.Drop, at(Src, "10.65.0.0/27"))}, nil, from, Passes},
		"from other addresses":                {false, []Rule{rule(table.Drop, at(Src, "10.65.0.64/26"))}, nil, from, Passes},
		"but from those":                      {false, []Rule{rule(table.Drop, not(at(Src, "10.65.0.64/26")))}, nil, from, Dropped},
		"but from around its own":             {false, []Rule{rule(table.Drop, not(at(Src, "10.64.0.0/15")))}, nil, from, Passes},
		"to addresses that aren't known":      {false, []Rule{rule(table.Drop, at(Dst, "169.254.0.0/16"))}, nil, from, Passes},
		"of IPv6":                             {false, []Rule{rule(table.Drop, Is{Field: Family, Bits: Text("\x0a")})}, nil, from, Passes},
		"accepted by its addresses":           {true, []Rule{rule(table.Accept, at(Src, "10.65.0.0/16"))}, nil, from, Passes},
		"a jump by its addresses":             {false, []Rule{to(table.Jump, "other", at(Src, "10.65.0.0/16"))}, []Rule{rule(table.Drop)}, from, Dropped},
		"it may come back":                    {true, []Rule{to(table.Jump, "other"), rule(table.Accept)}, []Rule{rule(table.Return, at(Dst, "10.0.0.0/8")), rule(table.Drop)}, doubt(Any), Passes},
		"a tunnel, and nothing for it":        {true, []Rule{rule(table.Accept, protocol("\x06"), port("\x00\x16"))}, nil, udp, Dropped},
		"a tunnel's port":                     {true, []Rule{rule(table.Accept, protocol("\x11"), port("\x12\xb5"))}, nil, udp, Passes},
		"a tunnel, and another port":          {true, []Rule{rule(table.Accept, protocol("\x11"), port("\x00\x35"))}, nil, udp, Dropped},
		"a tunnel, and answers":               {true, may(Answers), nil, udp, Dropped},
		"a tunnel, and all by an interface":   {true, []Rule{rule(table.Accept, Is{Bits: Text("eth0\x00")})}, nil, udp, Passes},
		"a tunnel, and all by others":         {true, []Rule{rule(table.Accept, Is{Bits: Text("cali1\x00")}), rule(table.Accept, Is{Bits: Text("lo\x00")})}, nil, udp, Dropped},
		"a tunnel, and addresses":             {true, []Rule{rule(table.Accept, at(Src, "10.0.0.0/8"))}, nil, udp, Passes},
		"accepted before all others are lost": {true, []Rule{rule(table.Accept, Is{Field: OutName, Bits: Text("cali")}), rule(table.Drop)}, nil, out, Passes},
	} {
		chains := map[string]Chain{"base": {Drops: c.drops, Rules: c.rules}, "other": {Rules: c.other}}
		got := Of(func(name string) Chain { return chains[name] }, "base", c.p)
		if got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
