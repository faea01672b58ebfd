// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

func TestReserved(t *testing.T) {
	for _, tt := range []struct{ cidrs, want, in, within string }{
		{"", "", "10.0.0.0/8", ""},
		{"10.80.0.0/28 10.80.0.5/32 10.80.0.240/28", "10.80.0.0/28 10.80.0.240/28", "10.80.0.0/24", "10.80.0.0/28 10.80.0.240/28"},
		{"10.0.0.1/32 10.0.0.0/32 10.0.0.2/31 10.0.0.2/31", "10.0.0.0/30", "10.0.0.0/31", "10.0.0.0/31"},
		{"10.0.0.4/30 10.0.0.8/30", "10.0.0.4/30 10.0.0.8/30", "10.0.0.0/29", "10.0.0.4/30"}, // no halves of one network
		{"0.0.0.0/1 ::/0 128.0.0.0/1", "0.0.0.0/0 ::/0", "fd00::/64", "fd00::/64"},
		{"fd00::/65 fd00:0:0:0:8000::/65 10.0.0.0/24", "10.0.0.0/24 fd00::/64", "fd01::/64", ""},
	} {
		var cidrs []netip.Prefix
		for s := range strings.FieldsSeq(tt.cidrs) {
			cidrs = append(cidrs, cidr(s))
		}
		text := func(set model.Reserved) string {
			var parts []string
			for _, p := range set {
				parts = append(parts, p.String())
			}
			return strings.Join(parts, " ")
		}
		set := model.NewReserved(cidrs)
		if got := text(set); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.cidrs, got, tt.want)
		}
		if got := text(set.Within(cidr(tt.in))); got != tt.within {
			t.Errorf("%s within %s: %s, want %s", tt.cidrs, tt.in, got, tt.within)
		}
	}
}

// TestReservedSlowly compares sets with the lists of their addresses.
func TestReservedSlowly(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	some := func() netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.Uint32())}), 24+random.IntN(9)).Masked()
	}
	for range 2000 {
		var cidrs []netip.Prefix
		for range random.IntN(12) {
			cidrs = append(cidrs, some())
		}
		set, part := model.NewReserved(cidrs), some()
		within := set.Within(part)
		whole := true
		for last := range 256 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(last)})
			want := slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
			if set.Contains(a) != want || within.Contains(a) != (want && part.Contains(a)) {
				t.Fatalf("%v: %s: %t in %v, %t within %s: %v", cidrs, a, set.Contains(a), set, within.Contains(a), part, within)
			}
			whole = whole && (want || !part.Contains(a))
		}
		if set.Covers(part) != whole {
			t.Fatalf("%v covers %s: %t", cidrs, part, set.Covers(part))
		}
		if diff := cmp.Diff(set, model.NewReserved(set), compare); diff != "" {
			t.Fatalf("%v: %s", cidrs, diff)
		}
	}
}
