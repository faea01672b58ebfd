// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// spoofSource is the chain that drops packets from others' addresses.
const spoofSource = "workload-source"

// TestForged sends packets that look like DHCP from another's address: nothing receives them.
func TestForged(t *testing.T) { bothWays(t, testForged) }

func testForged(t *testing.T, tell func(*Firewall)) {
	netns.Host(t, func() {
		asHost(t)
		thief, victim, sink, out := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "cali3"), newSpace(t, 4, "eth0")
		own := ownAddrs(t)
		thief.do(func() {
			for _, s := range []space{victim, out} {
				addAddrs(t, "eth0", s.ep.Addrs...)
			}
		})
		f := open(t)
		all := policy.Rule{Action: model.ActionAllow}
		host := &policy.Endpoint{Path: "/host", Interface: "eth0"}
		for _, s := range []space{thief, victim, sink} {
			s.ep.Inbound, s.ep.Outbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}, policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		}
		f.Update(policy.Changes{Endpoints: endpoints(thief.ep, victim.ep, sink.ep, host), Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})})
		tell(f)
		mustApply(t, f)
		buf := make([]byte, 10)
		for v, ports := range [][2]uint16{{68, 67}, {546, 547}} {
			atSink, atHost := sink.listen(int(ports[1])), listen(t, int(ports[1]))
			from := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, ports[0]) }
			toSink, toHost := netip.AddrPortFrom(sink.ep.Addrs[v], ports[1]), netip.AddrPortFrom(own[v], ports[1])
			spoofed := count(t, spoofSource, "spoofed source")

			send(t, thief, from(victim.ep.Addrs[v]), toSink)
			waitCount(t, spoofSource, "spoofed source", spoofed+1)
			// Not even as part of a connection that the victim has.
			send(t, victim, from(victim.ep.Addrs[v]), toSink)
			if _, _, err := readWithin(atSink, buf); err != nil {
				t.Fatal(err)
			}
			sink.do(func() {
				if _, err := atSink.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(from(victim.ep.Addrs[v]))); err != nil {
					t.Error(err)
				}
			})
			send(t, thief, from(victim.ep.Addrs[v]), toSink)
			waitCount(t, spoofSource, "spoofed source", spoofed+2)
			if waits(t, atSink) {
				t.Error("it came to another pod")
			}
			send(t, thief, from(thief.ep.Addrs[v]), toSink)
			if _, sender, err := readWithin(atSink, buf); err != nil || !strings.HasPrefix(sender.String(), from(thief.ep.Addrs[v]).String()) {
				t.Errorf("its own address: %v, %v", sender, err)
			}

			// Nor to the host.
			for i, s := range []space{victim, out} {
				send(t, thief, from(s.ep.Addrs[v]), toHost)
				waitCount(t, spoofSource, "spoofed source", spoofed+3+uint64(i))
			}
			if waits(t, atHost) {
				t.Error("it came to the host")
			}
			if v == 1 {
				testLinkLocal(t, thief, out, atHost, own[v])
			}
			send(t, thief, from(thief.ep.Addrs[v]), toHost)
			if _, _, err := readWithin(atHost, buf); err != nil {
				t.Errorf("to the host from its own address: %v", err)
			}
		}
	})
}

// testLinkLocal sends DHCPv6 from a link-local address to the host and to all servers. That opens nothing for the same address on another
// link.
func testLinkLocal(t *testing.T, pod, out space, atHost net.PacketConn, own netip.Addr) {
	t.Helper()
	servers, buf := ip("ff02::1:2"), make([]byte, 10)
	link, err := net.InterfaceByName("cali1")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := atHost.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: servers.As16(), Interface: uint32(link.Index)})
	}); e != nil || err != nil {
		t.Fatal(e, err)
	}
	local := ip("fe80::77")
	ask := func(s space, to netip.Addr) {
		s.do(func() {
			zone := strings.SplitN(run(t, "ip", "-o", "link", "show", "dev", "eth0"), ":", 2)[0] // Go remembers names of another namespace
			if to.IsMulticast() {
				to = to.WithZone(zone)
			}
			sendUDP(t, netip.AddrPortFrom(local.WithZone(zone), 546), netip.AddrPortFrom(to, 547))
		})
	}
	for _, s := range []space{pod, out} {
		s.do(func() { addAddrs(t, "eth0", local) })
	}
	for _, to := range []netip.Addr{own, servers} {
		ask(pod, to)
		if _, sender, err := readWithin(atHost, buf); err != nil || !sender.(*net.UDPAddr).IP.Equal(local.AsSlice()) {
			t.Errorf("from a link-local address to %v: %v, %v", to, sender, err)
		}
	}
	spoofed := count(t, spoofSource, "spoofed source")
	ask(pod, ip("ff02::1"))
	waitCount(t, spoofSource, "spoofed source", spoofed+1)
	denied := count(t, "host-in-eth0", "no policy or profile allows it")
	ask(out, own)
	waitCount(t, "host-in-eth0", "no policy or profile allows it", denied+1)
}
