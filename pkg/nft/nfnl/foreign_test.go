// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/table"
)

// TestParseIptables: rules as iptables-nft gives them to the kernel, with its extensions, are read as they are meant.
func TestParseIptables(t *testing.T) {
	in := []fate.Name{{Text: "cali", Prefix: true}}
	want := map[string]fate.Rule{
		"-i cali+ -j DROP":                 {Names: in, Verdict: table.Drop},
		"-o cali+ -j REJECT":               {Names: []fate.Name{{Out: true, Text: "cali", Prefix: true}}, Verdict: table.Drop},
		"! -i eth0 -j DROP":                {Names: []fate.Name{{Not: true, Text: "eth0"}}, Verdict: table.Drop},
		"-i cali1 -j ACCEPT":               {Names: []fate.Name{{Text: "cali1"}}, Verdict: table.Accept},
		"-m comment --comment x -j ACCEPT": {Verdict: table.Accept},
		"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT": {Conditional: true, May: fate.Answers, Verdict: table.Accept},
		"-m state --state ESTABLISHED -j ACCEPT":               {Conditional: true, May: fate.Answers, Verdict: table.Accept},
		"-s 10.0.0.0/8 -j ACCEPT":                              {Conditional: true, May: fate.Any, Verdict: table.Accept},
		"-p tcp -m tcp --dport 80 -j ACCEPT":                   {Conditional: true, May: fate.Few, Verdict: table.Accept},
		"-p icmp -j ACCEPT":                                    {Conditional: true, May: fate.Few, Verdict: table.Accept},
		"-m mark --mark 1 -j ACCEPT":                           {Conditional: true, May: fate.Any, Verdict: table.Accept},
		"-p tcp -m multiport --dports 80,81 -j ACCEPT":         {Conditional: true, May: fate.Few, Verdict: table.Accept},
		"-d 10.0.0.1 -i cali+ -j other":                        {Names: in, Conditional: true, May: fate.Any, Verdict: table.Jump, Target: "other"},
		"-i cali+ -g other":                                    {Names: in, Verdict: table.Goto, Target: "other"},
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
		got[rule] = parseForeign(exprs)
		for i := range exprs { // cut anywhere
			parseForeign(exprs[:i])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
