// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/test/netns"
)

// TestReadSources reads whose addresses another run has left in the kernel, whatever this one wants.
func TestReadSources(t *testing.T) {
	netns.Host(t, func() {
		var want []Source
		f := open(t)
		for _, ep := range sample().Endpoints {
			if ep.Workload && ep.Dropped == "" {
				for _, a := range ep.Addrs {
					want = append(want, Source{Interface: ep.Interface, Addr: a})
				}
			}
		}
		f.Update(sample())
		mustApply(t, f)
		next := open(t)
		expect := func(name string, want []Source) {
			t.Helper()
			got, err := next.ReadSources()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			byAddr := func(a, b Source) int { return a.Addr.Compare(b.Addr) }
			slices.SortFunc(want, byAddr)
			slices.SortFunc(got, byAddr)
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(Source{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		expect("before the first Apply", want)
		mustApply(t, next)
		expect("without endpoints", nil)
		for _, table := range []string{"delete table inet calico", "add table inet calico", "add set inet calico sources4 { type ipv4_addr; elements = { 192.0.2.1 }; }"} {
			run(t, "nft", table)
			expect(table, nil)
		}
	})
}
