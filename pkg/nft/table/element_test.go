// SPDX-License-Identifier: Apache-2.0

package table

import (
	"net/netip"
	"testing"
)

// TestPrefix converts prefixes to ranges and back, and a range that is no prefix.
func TestPrefix(t *testing.T) {
	for prefix, last := range map[string]string{
		"10.0.0.0/8": "10.255.255.255", "192.0.2.1/32": "192.0.2.1", "0.0.0.0/0": "255.255.255.255", "255.255.255.0/24": "255.255.255.255",
		"fd00::/8": "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/0": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fd00::1/128": "fd00::1",
	} {
		p := netip.MustParsePrefix(prefix)
		r := Ranges([]netip.Prefix{p})[0]
		if got, ok := r.Prefix(); !ok || got != p {
			t.Errorf("%s becomes %s, %t", p, got, ok)
		}
		if r.Last() != AddrBytes(netip.MustParseAddr(last)) {
			t.Errorf("%s ends with %x", p, r.Last())
		}
	}
	some := Ranges([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.1.0/25")})[0]
	if p, ok := some.Prefix(); ok {
		t.Errorf("%s is not all of it", p)
	}
	if got := rangeText(TypeIPv4, some); got != "10.0.0.0-10.0.1.127" {
		t.Errorf("got %s", got)
	}
}

// TestRanges compares prefixes with every address near their ends.
func TestRanges(t *testing.T) {
	var nets []netip.Prefix
	for _, p := range []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.0.128/25", "10.0.3.0/32", "255.255.255.0/24", "0.0.0.0/30"} {
		nets = append(nets, netip.MustParsePrefix(p))
	}
	in := func(a netip.Addr, ranges []Element) bool {
		b := AddrBytes(a)
		for _, r := range ranges {
			if r.Key <= b && (r.End == "" || b < r.End) {
				return true
			}
		}
		return false
	}
	ranges := Ranges(nets)
	for _, p := range nets {
		for _, a := range []netip.Addr{p.Addr(), p.Addr().Prev(), p.Addr().Next()} {
			if !a.IsValid() {
				continue
			}
			want := false
			for _, q := range nets {
				want = want || q.Contains(a)
			}
			if got := in(a, ranges); got != want {
				t.Errorf("%s: got %t, want %t", a, got, want)
			}
		}
	}
	for i := 1; i < len(ranges); i++ {
		if ranges[i-1].End >= ranges[i].Key {
			t.Errorf("ranges %d and %d touch", i-1, i)
		}
	}
}
