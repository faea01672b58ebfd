// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FuzzNotices: whatever the kernel reports of others' routes, addresses and sysctls, what is read is complete: a prefix of its own family,
// with an address of that family if there is one.
func FuzzNotices(f *testing.F) {
	message := func(header []byte, attrs ...[]byte) []byte {
		for i, a := range attrs {
			header = append(header, nl.NewRtAttr([...]int{unix.RTA_DST, unix.RTA_GATEWAY, unix.RTA_OIF}[i], a).Serialize()...)
		}
		return header
	}
	v6 := []byte{0xfd, 15: 1}
	f.Add(message([]byte{unix.AF_INET, 24, 0, 0, unix.RT_TABLE_MAIN, 80, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, []byte{10, 0, 0, 0}, []byte{192, 0, 2, 1}, []byte{7, 0, 0, 0}))
	f.Add(message([]byte{unix.AF_INET6, 64, 0, 0, unix.RT_TABLE_MAIN, 80, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, v6, v6))
	f.Add(message([]byte{unix.AF_INET, 100, 0, 0, unix.RT_TABLE_MAIN, 80, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, v6))
	f.Add(message([]byte{unix.AF_INET6, 126, 0, 0, 7, 0, 0, 0}, v6, v6))
	f.Add(message([]byte{unix.AF_INET, 0, 0, 0}, []byte{1, 0, 0, 0}, []byte{1, 0, 0, 0}, []byte{2, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		Attributes(b, func(_ uint16, data []byte) { total += unix.SizeofRtAttr + len(data) })
		if total > len(b) {
			t.Fatalf("%d bytes of attributes in %d", total, len(b))
		}
		if r, ok := ParseRoute(b); ok {
			if again, _ := RouteOf(*r.Netlink()); !r.Dst.IsValid() || r.Dst.Addr().Is4() != (b[0] == unix.AF_INET) || again.Dst != r.Dst || again.Gateway != r.Gateway {
				t.Errorf("%x: %+v, %+v", b, r, again)
			}
		}
		if p, _, ok := ParseAddr(b); ok && (!p.IsValid() || p.Addr().Is4() != (b[0] == unix.AF_INET)) {
			t.Errorf("%x: %v", b, p)
		}
		if n, ok := ParseNetconf(b); ok && (n.Family != b[0] || len(b) == 4 && (n != Netconf{Family: b[0], Forwarding: -1, RPFilter: -1, Proxy: -1})) {
			t.Errorf("%x: %+v", b, n)
		}
	})
}
