// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flows returns how many tracked connections have the address.
func flows(tb testing.TB, a netip.Addr) int {
	tb.Helper()
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(familyOf(a)))
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, f := range all {
		if condemned(func(c Connection) bool { return c.Involves(a) }).MatchConntrackFlow(f) {
			n++
		}
	}
	return n
}

func track(tb testing.TB, src, dst, replySrc, replyDst netip.Addr, port uint16) {
	tb.Helper()
	family := netlink.InetFamily(familyOf(src))
	flow := &netlink.ConntrackFlow{
		FamilyType: uint8(familyOf(src)),
		Forward:    netlink.IPTuple{SrcIP: net.IP(src.AsSlice()), DstIP: net.IP(dst.AsSlice()), SrcPort: port, DstPort: 53, Protocol: unix.IPPROTO_UDP},
		Reverse:    netlink.IPTuple{SrcIP: net.IP(replySrc.AsSlice()), DstIP: net.IP(replyDst.AsSlice()), SrcPort: 53, DstPort: port, Protocol: unix.IPPROTO_UDP},
		TimeOut:    100,
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, family, flow); err != nil {
		tb.Fatalf("track %s to %s: %v", src, dst, err)
	}
}

func TestDeleteConntrack(t *testing.T) {
	inHost(t, func() {
		pod, pod6, other, nat := netip.MustParseAddr("10.65.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.65.0.2"), netip.MustParseAddr("192.0.2.9")
		far, far6 := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("fd01::1")
		track(t, pod, far, far, pod, 1000)     // from it
		track(t, far, pod, pod, far, 1001)     // to it
		track(t, far, nat, pod, far, 1002)     // to it, by NAT
		track(t, pod6, far6, far6, pod6, 1003) // IPv6
		track(t, other, far, far, other, 1004) // another's
		n, err := DeleteConntrack([]netip.Addr{pod, pod6, netip.MustParseAddr("10.65.0.99")})
		if n != 4 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
		if flows(t, pod) != 0 || flows(t, pod6) != 0 || flows(t, other) != 1 {
			t.Errorf("left %d, %d; another's %d", flows(t, pod), flows(t, pod6), flows(t, other))
		}
		if n, err := DeleteConntrack(nil); n != 0 || err != nil {
			t.Errorf("of no address: %d, %v", n, err)
		}
	})
}

func TestDeleteConnections(t *testing.T) {
	inHost(t, func() {
		pod, far := netip.MustParseAddr("10.65.0.1"), netip.MustParseAddr("198.51.100.1")
		pod6, far6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd01::1")
		nat := netip.MustParseAddr("192.0.2.9")
		track(t, pod, far, far, pod, 1000)
		track(t, far, nat, pod, far, 1002)
		track(t, pod6, far6, far6, pod6, 1003)
		var seen []Connection
		n, err := DeleteConnections(func(c Connection) bool {
			seen = append(seen, c)
			return c.SrcPort != 1000
		})
		if n != 2 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
		slices.SortFunc(seen, func(a, b Connection) int { return int(a.SrcPort) - int(b.SrcPort) })
		want := []Connection{
			{model.ProtocolUDP, pod, far, 1000, 53, far, pod, 53, 1000, 0},
			{model.ProtocolUDP, far, nat, 1002, 53, pod, far, 53, 1002, 0},
			{model.ProtocolUDP, pod6, far6, 1003, 53, far6, pod6, 53, 1003, 0},
		}
		if diff := cmp.Diff(want, seen, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("connections (-want +got):\n%s", diff)
		}
		if flows(t, pod) != 1 || flows(t, pod6) != 0 {
			t.Errorf("left %d, %d", flows(t, pod), flows(t, pod6))
		}
	})
}

func TestMarkConnections(t *testing.T) {
	inHost(t, func() {
		const ours, others = 0x08000000, 0x1
		pod, far := netip.MustParseAddr("10.65.0.1"), netip.MustParseAddr("198.51.100.1")
		pod6, far6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd01::1")
		nat := netip.MustParseAddr("192.0.2.9")
		track(t, pod, far, far, pod, 1000)
		track(t, far, nat, pod, far, 1002)
		track(t, pod6, far6, far6, pod6, 1003)
		mark := func(bit uint32, want func(Connection) bool, set, cleared int) {
			t.Helper()
			s, c, err := MarkConnections(bit, want)
			if s != set || c != cleared || err != nil {
				t.Errorf("set %d, cleared %d, %v; want %d and %d", s, c, err, set, cleared)
			}
		}
		mark(others, func(Connection) bool { return true }, 3, 0)
		mark(ours, func(c Connection) bool { return c.SrcPort != 1000 }, 2, 0)
		mark(ours, func(c Connection) bool { return c.SrcPort == 1002 }, 0, 1)
		var seen []Connection
		mark(ours, func(c Connection) bool {
			seen = append(seen, c)
			return c.Mark&ours != 0
		}, 0, 0)
		slices.SortFunc(seen, func(a, b Connection) int { return int(a.SrcPort) - int(b.SrcPort) })
		want := []Connection{
			{model.ProtocolUDP, pod, far, 1000, 53, far, pod, 53, 1000, others},
			{model.ProtocolUDP, far, nat, 1002, 53, pod, far, 53, 1002, others | ours},
			{model.ProtocolUDP, pod6, far6, 1003, 53, far6, pod6, 53, 1003, others},
		}
		if diff := cmp.Diff(want, seen, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("connections (-want +got):\n%s", diff)
		}
	})
}
