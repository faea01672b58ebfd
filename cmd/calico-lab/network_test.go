// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

func TestNetwork(t *testing.T) {
	for _, c := range []struct {
		args  []string
		hosts []string
		racks [][]string
	}{
		{nil, []string{"a"}, nil},
		{[]string{"--hosts", "3"}, []string{"a", "b", "c"}, nil},
		{[]string{"--hosts", "x1,x2"}, []string{"x1", "x2"}, nil},
		{[]string{"--racks", "2"}, nil, [][]string{{"a", "b"}, {"c", "d"}}},
		{[]string{"--racks", "2", "--hosts", "5"}, nil, [][]string{{"a", "b"}, {"c", "d", "e"}}},
		{[]string{"--racks", "1", "--hosts", "x,y"}, nil, [][]string{{"x", "y"}}},
	} {
		var n network
		var cmd cobra.Command
		n.flags(&cmd)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		var cfg lab.Config
		if err := n.apply(&cfg); err != nil {
			t.Errorf("%q: %v", c.args, err)
		}
		if diff := cmp.Diff([]any{c.hosts, c.racks}, []any{cfg.Hosts, cfg.Racks}); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.args, diff)
		}
	}
	for i, want := range map[int]string{0: "a", 25: "z", 26: "a1", 53: "b2"} {
		if got := hostName(i); got != want {
			t.Errorf("host %d: got %s, want %s", i, got, want)
		}
	}
}
