// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// block returns a block with these addresses in use.
func block(cidr string, inUse ...int) model.Entry {
	b := model.Block{CIDR: netip.MustParsePrefix(cidr), Attributes: []model.Attributes{{HandleID: "h"}}}
	for o := range b.Size() {
		b.Allocations = append(b.Allocations, model.Free)
		if slices.Contains(inUse, o) {
			b.Allocations[o] = 0
		} else {
			b.Unallocated = append(b.Unallocated, o)
		}
	}
	return model.Entry{Value: b}
}

func reservation(cidrs ...string) model.Entry {
	var r model.Reservation
	for _, c := range cidrs {
		r.CIDRs = append(r.CIDRs, netip.MustParsePrefix(c))
	}
	return model.Entry{Value: r}
}

// Reservations may overlap, and an address that was in use before stays so: it counts as both.
func TestReservedAndFree(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []model.Entry
		want    []string // of each pool, and then its blocks: total, in use, reserved, free
	}{
		{"IPv4", []model.Entry{
			{Value: model.Pool{CIDR: netip.MustParsePrefix("10.80.0.0/24")}}, reservation("10.80.0.0/28", "10.80.0.5/32"), reservation("10.80.0.240/28"),
			block("10.80.0.0/26", 3), block("10.80.0.64/26", 36, 37),
		}, []string{"256 3 32 222", "64 1 16 48", "64 2 0 62"}},
		{"IPv6", []model.Entry{
			{Value: model.Pool{CIDR: netip.MustParsePrefix("fd00:80::/120")}}, reservation("fd00:80::/124", "fd00:80::5/128", "fd00:80::f0/124"),
			block("fd00:80::/122", 3), block("fd00:80::40/122", 36, 37),
		}, []string{"256 3 32 222", "64 1 16 48", "64 2 0 62"}},
		{"more than the pool", []model.Entry{
			{Value: model.Pool{CIDR: netip.MustParsePrefix("10.80.0.0/24")}}, reservation("10.0.0.0/8"), block("10.80.0.0/26", 0, 1),
		}, []string{"256 2 256 0", "64 2 64 0"}},
		{"a large pool", []model.Entry{{Value: model.Pool{CIDR: netip.MustParsePrefix("fd00::/63")}}, reservation("fd00:0:0:1::/64")},
			[]string{"36893488147419103232 0 18446744073709551616 18446744073709551616"}},
		{"in no pool", []model.Entry{reservation("10.80.0.0/28"), block("10.80.0.0/26", 3, 60), block("10.80.0.64/26", 0)},
			[]string{"128 3 16 110", "64 2 16 47", "64 1 0 63"}},
	} {
		var got []string
		line := func(c Counts) { got = append(got, fmt.Sprintf("%s %d %s %s", c.Total, c.InUse, c.Reserved, c.Free)) }
		for _, p := range New(tt.entries).Pools {
			line(p.Counts())
			for _, b := range p.Blocks {
				line(b.Counts())
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, diff)
		}
	}
}
