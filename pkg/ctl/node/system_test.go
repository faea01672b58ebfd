// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestSystem(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"proc/sys/kernel/osrelease":               file("5.9.1-amd64\n"),
		"proc/modules":                            file("xfs 1 0 - Live\nnf_tables 376832 0 - Live 0x0\nnf_conntrack_ftp 1 0 - Live\n"),
		"lib/modules/5.9.1-amd64/modules.builtin": file("kernel/net/netfilter/nf_conntrack.ko\n"),
		"lib/modules/5.9.1-amd64/modules.dep":     file("kernel/drivers/net/vxlan/vxlan.ko.xz: kernel/net/ipv4/udp_tunnel.ko.xz\nkernel/drivers/net/veth.ko:\nkernel/net/netfilter/nft_chain_nat.ko:\n"),
		"proc/sys/net/ipv4/ip_forward":            file("0\n"),
	}
	want := []Trait{
		{"kernel", "5.9.1-amd64", "want 5.10 or newer"},
		{"nf_tables", "loaded", ""},
		{"nf_conntrack", "built in", ""},
		{"nft_chain_nat", "a module, not loaded yet", ""},
		{"nft_connlimit", "missing", "install the kernel's modules, or another kernel: it is for MaxConnectionsPerEndpoint"},
		{"nft_numgen", "missing", "install the kernel's modules, or another kernel: it is for MaxConnectionsPerEndpoint"},
		{"veth", "a module, not loaded yet", ""},
		{"vxlan", "a module, not loaded yet", ""},
		{"ipip", "missing", "install the kernel's modules, or another kernel: it is for pools with ipipMode; without it the agent encapsulates by itself"},
		{"net/ipv4/ip_forward", "0", ""},
		{"net/ipv6/conf/all/forwarding", "not there", ""},
	}
	if diff := cmp.Diff(want, System(root)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		release string
		older   bool
	}{{"5.10.0-21-amd64", false}, {"6.18.44-fc-v78", false}, {"4.19.0", true}, {"6", false}, {"5.10-rc1", false}, {"", true}, {"x", true}} {
		if got := older(c.release, leastKernel); got != c.older {
			t.Errorf("%q is older: %t", c.release, got)
		}
	}
}
