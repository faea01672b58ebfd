// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// FuzzFabricMessages: whatever the kernel says of routes, entries and tunnels,
// nothing panics; and a route that can be read is the same after it was written
// and read again.
func FuzzFabricMessages(f *testing.F) {
	for _, dst := range []string{"10.0.0.0/26", "fd00::/122"} {
		for _, r := range []route{
			{dst: netip.MustParsePrefix(dst), kind: unix.RTN_BLACKHOLE, protocol: 81, metric: Metric},
			{dst: netip.MustParsePrefix(dst), kind: unix.RTN_UNICAST, protocol: 81, hops: []nextHop{{index: 3, onLink: true}}},
			{dst: netip.MustParsePrefix(dst), kind: unix.RTN_UNICAST, hops: []nextHop{{index: 3}, {index: 4, weight: 2}}},
			{dst: netip.MustParsePrefix(dst), kind: unix.RTN_UNICAST, hops: []nextHop{{index: 3, weight: 1}}},
		} {
			f.Add([]byte((*r.message(unix.RTM_NEWROUTE, 0))[unix.SizeofNlMsghdr:]))
		}
	}
	f.Add([]byte((*fdbEntry{3, link.HostMAC(), netip.MustParseAddr("192.0.2.1")}.set())[unix.SizeofNlMsghdr:]))
	f.Add([]byte((*newTunnel(ipipTunnel(), 0))[unix.SizeofNlMsghdr:]))
	f.Add(ipipLink(func(*rtnl.Message) {}))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseFDB(b)
		parseTunnel(b)
		r, ok := parseFabricRoute(b)
		if !ok || r.dst != r.dst.Masked() || r.dst.Addr().Is4() != (b[0] == unix.AF_INET) || slices.ContainsFunc(r.hops, func(h nextHop) bool { return h.index <= 0 }) {
			return // no kernel says so
		}
		again, ok := parseFabricRoute((*r.message(unix.RTM_NEWROUTE, 0))[unix.SizeofNlMsghdr:])
		if !ok || !again.equal(r) {
			t.Errorf("%+v, written and read: %+v, %v", r, again, ok)
		}
	})
}
