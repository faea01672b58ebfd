// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/netns"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tracked returns the connections that have one of the addresses.
func tracked(tb testing.TB, addrs ...netip.Addr) []Tracked {
	tb.Helper()
	all, err := List(func(c Connection) bool {
		return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a == c.Src || a == c.Dst || a == c.ReplySrc || a == c.ReplyDst })
	})
	if err != nil {
		tb.Fatal(err)
	}
	slices.SortFunc(all, func(a, b Tracked) int { return int(a.SrcPort) - int(b.SrcPort) })
	return all
}

func mustHave(tb testing.TB, got []Tracked, want ...Connection) {
	tb.Helper()
	var plain []Connection
	for _, t := range got {
		plain = append(plain, t.Connection)
	}
	if diff := cmp.Diff(want, plain, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		tb.Errorf("connections (-want +got):\n%s", diff)
	}
}

func track(tb testing.TB, src, dst, replySrc, replyDst netip.Addr, port uint16) {
	tb.Helper()
	family := netlink.InetFamily(rtnl.FamilyOf(src))
	flow := &netlink.ConntrackFlow{
		FamilyType: uint8(rtnl.FamilyOf(src)),
		Forward:    netlink.IPTuple{SrcIP: net.IP(src.AsSlice()), DstIP: net.IP(dst.AsSlice()), SrcPort: port, DstPort: 53, Protocol: unix.IPPROTO_UDP},
		Reverse:    netlink.IPTuple{SrcIP: net.IP(replySrc.AsSlice()), DstIP: net.IP(replyDst.AsSlice()), SrcPort: 53, DstPort: port, Protocol: unix.IPPROTO_UDP},
		TimeOut:    100,
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, family, flow); err != nil {
		tb.Fatalf("track %s to %s: %v", src, dst, err)
	}
}

func TestConnections(t *testing.T) {
	netns.Host(t, func() {
		pod, far := netip.MustParseAddr("10.65.0.1"), netip.MustParseAddr("198.51.100.1")
		pod6, far6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd01::1")
		nat, other := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("10.65.0.2")
		track(t, pod, far, far, pod, 1000)     // from it
		track(t, far, nat, pod, far, 1001)     // to it, by NAT
		track(t, pod6, far6, far6, pod6, 1002) // IPv6
		track(t, other, far, far, other, 1003) // another's
		from := Connection{model.ProtocolUDP, pod, far, 1000, 53, far, pod, 53, 1000, 0, 0}
		to := Connection{model.ProtocolUDP, far, nat, 1001, 53, pod, far, 53, 1001, 0, 0}
		v6 := Connection{model.ProtocolUDP, pod6, far6, 1002, 53, far6, pod6, 53, 1002, 0, 0}
		its := tracked(t, pod, pod6)
		mustHave(t, its, from, to, v6)
		for _, c := range its {
			if c.Timeout <= 0 || c.Timeout > 100*time.Second {
				t.Errorf("%v times out in %v, want at most 100 s", c.Connection, c.Timeout)
			}
			if c.Replied {
				t.Errorf("%v: replied, where nothing was sent", c.Connection)
			}
		}

		must := func(want int) func(int, error) {
			return func(n int, err error) {
				t.Helper()
				if n != want || err != nil {
					t.Errorf("%d, %v; want %d", n, err, want)
				}
			}
		}
		must(2)(Delete(its[1:]))
		mustHave(t, tracked(t, pod, pod6), from)
		must(0)(Delete(its[1:]))
		must(0)(Delete(nil))
		if n := len(tracked(t, other)); n != 1 {
			t.Errorf("another's connections: %d", n)
		}
	})
}

// TestICMP tracks queries of ICMP.
func TestICMP(t *testing.T) {
	netns.Host(t, func() {
		a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		a6, b6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
		insert := func(args ...string) {
			t.Helper()
			if out, err := exec.Command("conntrack", append([]string{"-I", "--timeout", "100"}, args...)...).CombinedOutput(); err != nil {
				t.Fatalf("conntrack %v: %v: %s", args, err, out)
			}
		}
		insert("-p", "icmp", "-s", a.String(), "-d", b.String(), "--icmp-type", "13", "--icmp-code", "0", "--icmp-id", "7")
		mustHave(t, tracked(t, a), Connection{Protocol: model.ProtocolICMP, Src: a, Dst: b, ReplySrc: b, ReplyDst: a, ICMPType: 13})
		insert("-p", "icmpv6", "-s", a6.String(), "-d", b6.String(), "--icmpv6-type", "128", "--icmpv6-code", "0", "--icmpv6-id", "7")
		mustHave(t, tracked(t, a6), Connection{Protocol: model.ProtocolICMPv6, Src: a6, Dst: b6, ReplySrc: b6, ReplyDst: a6, ICMPType: 128})
		all := tracked(t, a, a6)
		if n, err := Delete(all); n != 2 || err != nil {
			t.Errorf("deleted %d of %d, %v", n, len(all), err)
		}
	})
}

// TestPickedUp starts the tracker while a connection runs, whose server speaks first.
func TestPickedUp(t *testing.T) {
	netns.Host(t, func() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		server := listener.Addr().(*net.TCPAddr).AddrPort()
		connect := func() (far net.Conn) {
			near, err := net.Dial("tcp", server.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { near.Close() })
			if far, err = listener.Accept(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { far.Close() })
			return far
		}
		ran := connect()
		track := exec.Command("nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c ct state new accept")
		if out, err := track.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if _, err := ran.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		begun := connect()
		for _, c := range tracked(t, server.Addr()) {
			if !c.Replied {
				t.Errorf("%v: no reply, where both sides have sent", c.Connection)
			}
			switch fromServer := c.SrcPort == server.Port(); {
			case fromServer != c.PickedUp:
				t.Errorf("%v: picked up: %v", c.Connection, c.PickedUp)
			case fromServer:
				ran = nil
			default:
				begun = nil
			}
		}
		if ran != nil || begun != nil {
			t.Errorf("not tracked: the one that ran: %v, the one begun since: %v", ran != nil, begun != nil)
		}
	})
}
