// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestUsage: an address that was in use before it was reserved counts once.
func TestUsage(t *testing.T) {
	block := func(c string, inUse ...int) model.Entry {
		b := model.Block{CIDR: netip.MustParsePrefix(c), Attributes: []model.Attributes{{HandleID: "h"}}}
		for o := range b.Size() {
			b.Allocations = append(b.Allocations, model.Free)
			if slices.Contains(inUse, o) {
				b.Allocations[o] = 0
			}
		}
		return model.Entry{Key: model.BlockKey{CIDR: b.CIDR}, Value: b}
	}
	reservation := func(name string, cidrs ...string) model.Entry {
		var r model.Reservation
		for _, c := range cidrs {
			r.CIDRs = append(r.CIDRs, netip.MustParsePrefix(c))
		}
		return model.Entry{Key: model.ReservationKey{Name: name}, Value: r}
	}
	four, six, all := netip.MustParsePrefix("10.80.0.0/24"), netip.MustParsePrefix("fd00:80::/120"), netip.MustParsePrefix("10.81.0.0/24")
	s := NewSurvey([]model.Entry{
		{Key: model.PoolKey{CIDR: four}}, {Key: model.PoolKey{CIDR: six}}, {Key: model.PoolKey{CIDR: all}},
		reservation("a", "10.80.0.0/28", "10.80.0.5/32", "fd00:80::/124", "10.81.0.0/16"), reservation("b", "10.80.0.240/28", "fd00:80::5/128", "fd00:80::f0/124"),
		block("10.80.0.0/26", 3), block("10.80.0.64/26", 36, 37), block("fd00:80::/122", 3), block("fd00:80::40/122", 36, 37), block("10.81.0.0/26", 0, 1),
	})
	got := map[netip.Prefix]Usage{}
	for _, u := range s.Usage() {
		got[u.Pool] = u
	}
	want := map[netip.Prefix]Usage{four: {four, 3, 222}, six: {six, 3, 222}, all: {all, 2, 0}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
