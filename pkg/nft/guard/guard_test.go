// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChains: for each IP version a port accepts packets of its VNIs from its nodes alone, and its other traffic is left alone; a version
// without a node is closed.
func TestChains(t *testing.T) {
	if got := chainsOf(nil); len(got) > 0 {
		t.Errorf("without a tunnel there are chains: %v", got)
	}
	var got strings.Builder
	for _, c := range chainsOf([]Tunnel{
		{netip.MustParseAddr("192.0.2.2"), 4789, 70000}, {netip.MustParseAddr("192.0.2.1"), 4789, 5}, {netip.MustParseAddr("192.0.2.1"), 4789, 5},
		{netip.MustParseAddr("2001:db8::1"), 4795, 7},
	}) {
		got.WriteString(c.String())
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
}

const want = `	chain input {
		comment "VXLAN from nodes without a connection"
		type filter hook input priority filter - 2; policy accept;
		udp dport 4789 @th,96,24 { 5, 70000 } ip saddr != { 192.0.2.1, 192.0.2.2 } counter drop
		udp dport 4789 @th,96,24 { 5, 70000 } meta nfproto ipv6 counter drop
		udp dport 4795 @th,96,24 { 7 } meta nfproto ipv4 counter drop
		udp dport 4795 @th,96,24 { 7 } ip6 saddr != { 2001:db8::1 } counter drop
	}
	chain forward {
		comment "VXLAN that the node itself didn't send"
		type filter hook forward priority filter - 2; policy accept;
		udp dport 4789 @th,96,24 { 5, 70000 } ip daddr { 192.0.2.1, 192.0.2.2 } counter drop
		udp dport 4795 @th,96,24 { 7 } ip6 daddr { 2001:db8::1 } counter drop
	}
`
