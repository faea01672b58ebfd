// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// space is a network namespace wired to the host's; do runs fn in it.
type space struct {
	tb    testing.TB
	do    func(fn func())
	ep    *policy.Endpoint
	iface string // the host's end
}

// newSpace creates a namespace joined to the current one, the host, by a veth with static neighbours. The host's end has the MAC address
// 2:1:….
func newSpace(tb testing.TB, n int, iface string) space {
	tb.Helper()
	return newSpaceBy(tb, n, iface)
}

// newSpaceBy is newSpace with more arguments for the link, such as its index.
func newSpaceBy(tb testing.TB, n int, iface string, link ...string) space {
	tb.Helper()
	work, path := make(chan func()), make(chan string)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			tb.Error(err)
		}
		path <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		for fn := range work {
			fn()
		}
	}()
	tb.Cleanup(func() { close(work) })
	ep := workload(n)
	s := space{tb: tb, ep: ep, iface: iface, do: func(fn func()) {
		ended, done := false, make(chan struct{})
		work <- func() { defer close(done); fn(); ended = true }
		if <-done; !ended { // fn has failed the test, which ends this thread; nothing would take more work
			tb.FailNow()
		}
	}}
	hostMAC := fmt.Sprintf("02:01:00:00:00:%02x", n)
	run(tb, slices.Concat([]string{"ip", "link", "add", iface}, link, []string{"address", hostMAC, "type", "veth", "peer", "name", "eth0", "address", ep.MAC.String(), "netns", <-path})...)
	run(tb, "ip", "link", "set", iface, "addrgenmode", "none", "up")
	s.do(func() {
		// What the kernel says of itself, at times of its own, would be counted like what tests send.
		run(tb, "nft", "add table inet quiet; add chain inet quiet out { type filter hook output priority 0; }; "+
			"add rule inet quiet out icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report, nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } drop")
		run(tb, "ip", "link", "set", "eth0", "up")
		run(tb, "ip", "link", "set", "lo", "up")
		addAddrs(tb, "eth0", ep.Addrs...)
		for i := range ep.Addrs {
			gateway := []string{"169.254.1.1", "fe80::1"}[i]
			run(tb, "ip", "neigh", "add", gateway, "lladdr", hostMAC, "dev", "eth0", "nud", "permanent")
			run(tb, "ip", "route", "add", "default", "via", gateway, "dev", "eth0", "onlink")
		}
	})
	for _, a := range ep.Addrs {
		s.route(a)
	}
	// Until the kernel has seen that an end is up, from a work queue, it drops what is sent by it.
	awaitUp(tb, iface)
	s.do(func() { awaitUp(tb, "eth0") })
	return s
}

// awaitUp waits until a link of the current namespace is up.
func awaitUp(tb testing.TB, link string) {
	tb.Helper()
	eventually.True(tb, link+" to be up", func() bool { return strings.Contains(run(tb, "ip", "-o", "link", "show", "dev", link), " state UP ") })
}

// addAddrs adds addresses to a link of the current namespace, and waits until packets to them are accepted: IPv6's route to the host itself
// comes from a work queue, and until then a packet sent there is lost.
func addAddrs(tb testing.TB, link string, addrs ...netip.Addr) {
	tb.Helper()
	for _, a := range addrs {
		run(tb, "ip", "addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", link, "nodad")
	}
	for _, a := range addrs {
		eventually.True(tb, a.String()+" to be local", func() bool {
			return a.Is4() || run(tb, "ip", "-6", "route", "show", "table", "local", a.String()) != ""
		})
	}
}

// route adds a route to an address from the host to the namespace.
func (s space) route(a netip.Addr) {
	s.tb.Helper()
	run(s.tb, "ip", "route", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", s.iface)
	run(s.tb, "ip", "neigh", "add", a.String(), "lladdr", s.ep.MAC.String(), "dev", s.iface, "nud", "permanent")
}

// translate gives the workload an address of each version that is translated to its own.
func (s space) translate() {
	s.tb.Helper()
	s.ep.NAT = []model.NAT{{IntIP: s.ep.Addrs[0], ExtIP: ip("192.0.2.2")}, {IntIP: s.ep.Addrs[1], ExtIP: ip("2001:db8::2")}}
	for _, n := range s.ep.NAT {
		s.route(n.ExtIP)
	}
}

// ownAddrs gives the host's end of eth0 an address of each version.
func ownAddrs(tb testing.TB) []netip.Addr {
	tb.Helper()
	own := []netip.Addr{ip("10.9.9.9"), ip("fd09::9")}
	addAddrs(tb, "eth0", own...)
	return own
}

// masqueradesFirst returns the pools of the first two workloads; only the first one is masqueraded.
func masqueradesFirst() *policy.Pools {
	return &policy.Pools{All: cidrs("10.65.0.0/31", "10.65.0.2/32", "fd00::/127", "fd00::2/128"), Masquerade: cidrs("10.65.0.1/32", "fd00::1/128")}
}

// asHost makes the current namespace forward. Rules of another table set all marks on every packet that comes in or goes out: ours must not
// be misled by them, and packets on which the others' marks were changed are counted.
func asHost(tb testing.TB) {
	tb.Helper()
	run(tb, "ip", "link", "set", "lo", "up")
	for _, hook := range []string{"prerouting", "output"} {
		run(tb, "nft", fmt.Sprintf("add table inet other; add chain inet other %[1]s { type filter hook %[1]s priority -290; }; add rule inet other %[1]s meta mark set 0xffffffff", hook))
	}
	for _, hook := range []string{"input", "postrouting"} {
		run(tb, "nft", fmt.Sprintf("add chain inet other %[1]s { type filter hook %[1]s priority 300; }; add rule inet other %[1]s meta mark & 0xf0ffffff != 0xf0ffffff counter", hook))
	}
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

// listen opens a UDP socket in the namespace.
func (s space) listen(port int) net.PacketConn {
	s.tb.Helper()
	var c net.PacketConn
	s.do(func() { c = listen(s.tb, port) })
	return c
}

func listen(tb testing.TB, port int) net.PacketConn {
	tb.Helper()
	c, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// markerPort is open for all in these tests. A packet sent to it arrives after one sent before.
const markerPort = 9

// probe sends a UDP packet, and then one to the marker from another address: when that arrives, the first has arrived or never will. If it
// is expected to arrive, the test waits longer. probe returns the sender as the receiver sees it.
func probe(tb testing.TB, in func(func()), from, to netip.AddrPort, at, marker net.PacketConn, markerFrom, markerTo netip.Addr, arrives bool) (netip.AddrPort, bool) {
	tb.Helper()
	send := func(from, to netip.AddrPort) {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
		if err != nil {
			tb.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil && !isPerm(err) {
			tb.Fatal(err)
		}
	}
	in(func() {
		send(from, to)
		send(netip.AddrPortFrom(markerFrom, 0), netip.AddrPortFrom(markerTo, markerPort))
	})
	buf := make([]byte, 10)
	if _, _, err := readWithin(marker, buf); err != nil {
		tb.Fatalf("the marker: %v", err)
	}
	if !arrives && !waits(tb, at) {
		return netip.AddrPort{}, false
	}
	_, sender, err := readWithin(at, buf)
	if err != nil {
		return netip.AddrPort{}, false
	}
	a := sender.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), true
}

// sockets are the listening sockets, by place and port.
type sockets map[string]map[int]net.PacketConn

// A trial is a packet to send and the expected result.
type trial struct {
	name         string
	in           func(func())
	from         netip.Addr
	sport, dport int
	at           string
	to           netip.Addr
	markerFrom   netip.Addr
	want         netip.Addr // sender as seen, zero = dropped
}

// try sends the packet and checks which sender its receiver sees.
func (s sockets) try(t *testing.T, when string, c trial) {
	t.Helper()
	sender, ok := probe(t, c.in, netip.AddrPortFrom(c.from, uint16(c.sport)), netip.AddrPortFrom(c.to, uint16(c.dport)),
		s[c.at][c.dport], s[c.at][markerPort], c.markerFrom, c.to, c.want.IsValid())
	if ok != c.want.IsValid() || ok && sender.Addr() != c.want {
		t.Errorf("%s%s, from %s to %s: received %t, from %s: want %s", when, c.name, c.from, c.to, ok, sender, c.want)
	}
}

// readWithin waits for a packet.
func readWithin(c net.PacketConn, buf []byte) (int, net.Addr, error) {
	_ = c.SetReadDeadline(time.Now().Add(eventually.Limit))
	return c.ReadFrom(buf)
}

// waits reports whether a packet is ready to be read.
func waits(tb testing.TB, c net.PacketConn) bool {
	tb.Helper()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	there := false
	err = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		there = err == nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return there
}

// isPerm reports whether the host's own packet was dropped on its way out.
func isPerm(err error) bool { return errors.Is(err, os.ErrPermission) }

// here runs fn in the current namespace.
func here(fn func()) { fn() }

// withMarker returns rules that allow the marker, followed by the given ones.
func withMarker(rules ...policy.Rule) []policy.Rule {
	return append([]policy.Rule{{Action: model.ActionAllow, Match: policy.Criteria{Protocol: model.ProtocolUDP, DstPorts: []model.Port{{Min: markerPort, Max: markerPort}}}}}, rules...)
}

func udpTo(action model.Action, port uint16) policy.Rule {
	return policy.Rule{Action: action, Match: policy.Criteria{Protocol: model.ProtocolUDP, DstPorts: []model.Port{{Min: port, Max: port}}}}
}

// TestPackets sends real packets between two workloads, the host and the outside.
func TestPackets(t *testing.T) { bothWays(t, testPackets) }

func testPackets(t *testing.T, tell func(*Firewall)) {
	netns.Host(t, func() {
		asHost(t)
		a, b, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "eth0")
		own := ownAddrs(t)
		b.translate()
		web := policy.Verdicts{Policies: []policy.RulesID{policyID("web")}}
		for _, s := range []space{a, b} {
			s.ep.Inbound, s.ep.Outbound = web, policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		}
		all := policy.Rule{Action: model.ActionAllow}
		host := &policy.Endpoint{Path: "/host", Interface: "eth0", Inbound: web, Outbound: policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}},
			UntrackedInbound: []policy.RulesID{policyID("raw")}, UntrackedOutbound: []policy.RulesID{policyID("raw")}}
		f := open(t)
		f.Update(policy.Changes{
			Endpoints: endpoints(a.ep, b.ep, host),
			Rules: rules(
				policy.Rules{ID: policyID("web"), Inbound: withMarker(
					udpTo(model.ActionDeny, 81),
					policy.Rule{Action: model.ActionAllow, Match: policy.Criteria{Protocol: model.ProtocolUDP, SrcSets: []policy.SetID{"friends"}, DstPorts: []model.Port{{Min: 80, Max: 89}}}},
				)},
				policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}},
				policy.Rules{ID: policyID("raw"), Inbound: []policy.Rule{udpTo(model.ActionAllow, 9000)}},
			),
			Sets:  map[policy.SetID]*policy.SetChange{"friends": {Kind: policy.KindAddrs, New: true, Added: []policy.Member{{Addr: a.ep.Addrs[0]}, {Addr: a.ep.Addrs[1]}, {Addr: ip("192.0.2.2")}, {Addr: b.ep.Addrs[0]}, {Addr: b.ep.Addrs[1]}}}},
			Pools: masqueradesFirst(),
		})
		tell(f)
		mustApply(t, f)
		ports := sockets{"b": {}, "out": {}, "host": {}}
		for _, port := range []int{markerPort, 80, 81, 200, 9000, 22} {
			ports["b"][port], ports["out"][port], ports["host"][port] = b.listen(port), out.listen(port), listen(t, port)
		}
		for v := range own {
			src, bad := a.ep.Addrs[v], []netip.Addr{ip("10.65.0.99"), ip("fd00::99")}[v]
			a.do(func() { addAddrs(t, "eth0", bad) })
			for _, c := range []trial{
				{"allowed by a set", a.do, src, 1000, 80, "b", b.ep.Addrs[v], src, src},
				{"denied", a.do, src, 1000, 81, "b", b.ep.Addrs[v], src, netip.Addr{}},
				{"no policy decides", a.do, src, 1000, 200, "b", b.ep.Addrs[v], src, netip.Addr{}},
				{"spoofed source", a.do, bad, 1000, markerPort + 71, "b", b.ep.Addrs[v], src, netip.Addr{}},
				{"1:1 NAT", a.do, src, 1001, 80, "b", b.ep.NAT[v].ExtIP, src, src},
				{"an endpoint calls itself", b.do, b.ep.Addrs[v], 1002, 80, "b", b.ep.NAT[v].ExtIP, b.ep.Addrs[v], b.ep.NAT[v].ExtIP},
				{"masqueraded", a.do, src, 1003, 80, "out", out.ep.Addrs[v], src, own[v]},
				{"not of a masquerade pool", b.do, b.ep.Addrs[v], 1004, 80, "out", out.ep.Addrs[v], b.ep.Addrs[v], b.ep.Addrs[v]},
				{"host to its workload", here, own[v], 1005, 200, "b", b.ep.Addrs[v], own[v], own[v]},
				{"from outside, denied", out.do, out.ep.Addrs[v], 1006, 80, "b", b.ep.Addrs[v], out.ep.Addrs[v], netip.Addr{}},
				{"to the host, denied", out.do, out.ep.Addrs[v], 1007, 80, "host", own[v], out.ep.Addrs[v], netip.Addr{}},
				{"to the host, untracked", out.do, out.ep.Addrs[v], 1008, 9000, "host", own[v], out.ep.Addrs[v], out.ep.Addrs[v]},
			} {
				ports.try(t, "", c)
			}
		}
		waitCount(t, "workload-source", "spoofed source", 2)
		waitCount(t, "accept-untracked", "", 2)
		testToHost(t, f, a, own, ports["host"])
		testGone(t, f, a, b, ports["b"])
		if marks := run(t, "nft", "list table inet other"); strings.Count(marks, "counter packets 0 bytes 0") != 2 {
			t.Errorf("bits of marks that aren't ours were changed:\n%s", marks)
		}
	})
}
