// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/test/netns"
)

// TestLost says of which addresses connections are over, and of none whose endpoint was
// connected by a former run and still is.
func TestLost(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		expect := func(name string, r Report, want ...netip.Addr) {
			t.Helper()
			slices.SortFunc(r.Lost, netip.Addr.Compare)
			slices.SortFunc(want, netip.Addr.Compare)
			if diff := cmp.Diff(want, r.Lost, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		expect("one that came while nobody looked", mustApply(t, h, a.endpoint), a.endpoint.Addrs...)
		expect("one that comes", mustApply(t, h, a.endpoint, b.endpoint))
		expect("nothing is new", mustApply(t, newHostPath(t), a.endpoint, b.endpoint))
		netns.IP(t, "link", "del", "cali2")
		b = wire(t, 2)
		expect("one that was made again while nobody looked", mustApply(t, newHostPath(t), a.endpoint, b.endpoint), b.endpoint.Addrs...)
		netns.IP(t, "route", "del", "10.65.0.1")
		netns.IP(t, "route", "add", "10.65.0.1", "dev", "cali1", "proto", "80", "scope", "global")
		netns.IP(t, "-6", "route", "del", "fd00::1")
		netns.IP(t, "-6", "route", "add", "fd00::1", "dev", "cali1", "proto", "80", "metric", "77")
		expect("one whose routes are of another kind", mustApply(t, newHostPath(t), a.endpoint, b.endpoint))
		expect("one that went, and left its link", mustApply(t, newHostPath(t), b.endpoint), a.endpoint.Addrs...)
	})
}
