// SPDX-License-Identifier: Apache-2.0

package table

import (
	"net/netip"
	"testing"
)

// TestRange has prefixes, and what is none, as ranges and back.
func TestRange(t *testing.T) {
	for prefix, last := range map[string]string{
		"10.0.0.0/8": "10.255.255.255", "192.0.2.1/32": "192.0.2.1", "0.0.0.0/0": "255.255.255.255", "255.255.255.0/24": "255.255.255.255",
		"fd00::/8": "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/0": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fd00::1/128": "fd00::1",
	} {
		p := netip.MustParsePrefix(prefix)
		r := Range(p)
		if got, ok := r.Prefix(); !ok || got != p {
			t.Errorf("%s becomes %s, %t", p, got, ok)
		}
		if r.Last() != AddrBytes(netip.MustParseAddr(last)) {
			t.Errorf("%s ends with %x", p, r.Last())
		}
	}
	some := Element{Key: Range(netip.MustParsePrefix("10.0.0.0/24")).Key, End: Range(netip.MustParsePrefix("10.0.1.0/25")).End}
	if p, ok := some.Prefix(); ok {
		t.Errorf("%s is not all of it", p)
	}
	if got := rangeText(TypeIPv4, some); got != "10.0.0.0-10.0.1.127" {
		t.Errorf("got %s", got)
	}
}
