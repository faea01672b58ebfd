// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// A block belongs to the pool that assigns its addresses, and to a disabled one only if there is no other.
func TestBlocksOfPools(t *testing.T) {
	wide, narrow := netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.0.0.0/24")
	inside, outside := netip.MustParsePrefix("10.0.0.64/26"), netip.MustParsePrefix("10.0.1.0/26")
	for _, tt := range []struct {
		wide, narrow bool // disabled
		want         netip.Prefix
	}{
		{want: narrow}, {wide: true, want: narrow}, {narrow: true, want: wide}, {wide: true, narrow: true, want: narrow},
	} {
		u := New([]model.Entry{
			{Value: model.Pool{CIDR: wide, Disabled: tt.wide}}, {Value: model.Pool{CIDR: narrow, Disabled: tt.narrow}},
			{Value: model.Block{CIDR: inside}}, {Value: model.Block{CIDR: outside}},
		})
		for _, p := range u.Pools {
			for _, b := range p.Blocks {
				if want := map[netip.Prefix]netip.Prefix{inside: tt.want, outside: wide}[b.CIDR]; p.CIDR != want {
					t.Errorf("%+v: block %s is of pool %s, want %s", tt, b.CIDR, p.CIDR, want)
				}
			}
		}
	}
}

// A pool is parked if there are nodes and its selector matches none of them.
func TestParked(t *testing.T) {
	node := func(rack string) model.Entry {
		return model.Entry{Value: model.HostMetadata{Labels: map[string]string{"rack": rack}}}
	}
	for _, tt := range []struct {
		selector string
		nodes    []model.Entry
		want     bool
	}{
		{"", []model.Entry{node("1")}, false},
		{`rack == "1"`, []model.Entry{node("2"), node("1")}, false},
		{`rack == "1"`, []model.Entry{node("2")}, true},
		{"!all()", []model.Entry{node("1")}, true},
		{"!all()", nil, false},
	} {
		pool := model.Entry{Value: model.Pool{CIDR: netip.MustParsePrefix("10.0.0.0/16"), NodeSelector: tt.selector}}
		if got := New(append(tt.nodes, pool)).Pools[0].Parked; got != tt.want {
			t.Errorf("%q, %d nodes: parked %t, want %t", tt.selector, len(tt.nodes), got, tt.want)
		}
	}
}
