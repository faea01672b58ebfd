// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/table"
)

// TestParseIptables: rules in the form of iptables-nft, with its extensions, are understood.
func TestParseIptables(t *testing.T) {
	in := []fate.Is{{Bits: fate.Text("cali")}}
	protocol := func(n string) fate.Is { return fate.Is{Field: fate.Protocol, Bits: fate.Text(n)} }
	want := map[string]fate.Rule{
		"-i cali+ -j DROP":                 {Is: in, Verdict: table.Drop},
		"-o cali+ -j REJECT":               {Is: []fate.Is{{Field: fate.OutName, Bits: fate.Text("cali")}}, Verdict: table.Drop},
		"! -i eth0 -j DROP":                {Is: []fate.Is{{Not: true, Bits: fate.Text("eth0\x00")}}, Verdict: table.Drop},
		"-i cali1 -j ACCEPT":               {Is: []fate.Is{{Bits: fate.Text("cali1\x00")}}, Verdict: table.Accept},
		"-m comment --comment x -j ACCEPT": {Verdict: table.Accept, Comment: "x"},
		"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT": {Conditional: true, May: fate.Answers, Verdict: table.Accept},
		"-m state --state ESTABLISHED -j ACCEPT":               {Conditional: true, May: fate.Answers, Verdict: table.Accept},
		"-s 10.0.0.0/8 -j ACCEPT":                              {Is: []fate.Is{{Field: fate.Src, Bits: fate.Bits{Value: "\x0a", Len: 8}}}, Verdict: table.Accept},
		"-p tcp -m tcp --dport 80 -j ACCEPT":                   {Is: []fate.Is{protocol("\x06"), {Field: fate.DstPort, Bits: fate.Text("\x00\x50")}}, Verdict: table.Accept},
		"-p icmp -j ACCEPT":                                    {Is: []fate.Is{protocol("\x01")}, Verdict: table.Accept},
		"-m mark --mark 1 -j ACCEPT":                           {Conditional: true, May: fate.Any, Verdict: table.Accept},
		"-p tcp -m multiport --dports 80,81 -j ACCEPT":         {Is: []fate.Is{protocol("\x06")}, Conditional: true, May: fate.Few, Verdict: table.Accept},
		"-d 10.0.0.1 -i cali+ -j other":                        {Is: append(in[:1:1], fate.Is{Field: fate.Dst, Bits: fate.Text("\x0a\x00\x00\x01")}), Verdict: table.Jump, Target: "other"},
		"-i cali+ -g other":                                    {Is: in, Verdict: table.Goto, Target: "other"},
		"-j RETURN":                                            {Verdict: table.Return},
		"-j LOG":                                               {},
		"-m addrtype --dst-type LOCAL -j other":                {Conditional: true, May: fate.Any, Verdict: table.Jump, Target: "other"},
	}
	samples, err := os.ReadFile("testdata/iptables-1.8.9.tsv")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]fate.Rule{}
	for line := range strings.Lines(string(samples)) {
		rule, digits, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exprs, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		got[rule] = parseForeign(exprs, unix.NFPROTO_IPV4)
		for i := range exprs { // cut anywhere
			parseForeign(exprs[:i], unix.NFPROTO_IPV4)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
