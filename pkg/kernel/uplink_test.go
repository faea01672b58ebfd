// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUplinks(t *testing.T) {
	inHost(t, func() {
		check := func(want []string, wantMTU int) {
			t.Helper()
			links, err := Uplinks("cali")
			var got []string
			for _, l := range links {
				got = append(got, l.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			mtu, err := UplinkMTU("cali")
			if mtu != wantMTU || (wantMTU == 0) != errors.Is(err, ErrNoUplink) {
				t.Errorf("MTU %d, %v; want %d", mtu, err, wantMTU)
			}
		}
		wire(t, 1)
		check(nil, 0)
		for _, n := range []string{"1", "2", "3"} {
			ip(t, "link", "add", "up"+n, "mtu", "1"+n+"00", "type", "veth", "peer", "name", "peer"+n)
			ip(t, "link", "set", "up"+n, "up")
			ip(t, "addr", "add", "192.0."+n+".1/24", "dev", "up"+n)
		}
		check([]string{"up1", "up2", "up3"}, 1100)
		ip(t, "route", "add", "default", "nexthop", "via", "192.0.2.2", "nexthop", "via", "192.0.3.2")
		check([]string{"up2", "up3"}, 1200)
		ip(t, "route", "replace", "default", "via", "192.0.3.2")
		check([]string{"up3"}, 1300)
	})
}
