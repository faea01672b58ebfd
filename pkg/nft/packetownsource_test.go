// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestOwnSourceByTunnel: a rule of another table sends packets from the host to a service into a tunnel: they leave with the tunnel's
// address. Packets that leave elsewhere, or have the tunnel's address, stay as they are.
func TestOwnSourceByTunnel(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		service := []netip.Addr{ip("10.96.0.50"), ip("fd96::50")}
		fabric := newSpace(t, 9, "eth0")
		own := ownAddrs(t)
		for _, a := range service { // the socket's source address is that of the way to the service
			run(t, "ip", "route", "add", a.String(), "dev", "eth0", "src", own[versionIndex(a)].String())
		}
		run(t, "nft", "add table inet proxy; add chain inet proxy out { type nat hook output priority -100; }")
		f := open(t)
		f.Tunnels(policy.Tunnels{VXLANPort: vxlanPort, IPIP: true})
		mustApply(t, f)
		outside := fabric.listen(80)
		for i, device := range []string{"vxlan.calico", "vxlan-v6.calico", "tunl0"} {
			s := newSpace(t, i+1, device)
			tunnel := []netip.Addr{ip(fmt.Sprintf("192.168.1.%d", i)), ip(fmt.Sprintf("fd01::%d", i+1))}
			addAddrs(t, device, tunnel...)
			pod := s.listen(80)
			for v := range own {
				family := []string{"ip", "ip6"}[v]
				run(t, "nft", fmt.Sprintf("flush chain inet proxy out; add rule inet proxy out %s daddr %s dnat %s to %s", family, service[v], family, s.ep.Addrs[v]))
				got := sentFrom(t, netip.AddrPortFrom(netip.Addr{}, uint16(9000+i)), netip.AddrPortFrom(service[v], 80), pod)
				if got.Addr() != tunnel[v] {
					t.Errorf("%s, to a service: arrives from %s, want %s", device, got, tunnel[v])
				}
				from := netip.AddrPortFrom(tunnel[v], 20001)
				if got := sentFrom(t, from, netip.AddrPortFrom(s.ep.Addrs[v], 80), pod); got != from {
					t.Errorf("%s, from its own address %s: arrives from %s", device, from, got)
				}
				from = netip.AddrPortFrom(own[v], uint16(20002+i))
				if got := sentFrom(t, from, netip.AddrPortFrom(fabric.ep.Addrs[v], 80), outside); got != from {
					t.Errorf("by no tunnel, from %s: arrives from %s", from, got)
				}
			}
		}
	})
}

func versionIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// sentFrom sends a packet and returns the sender as the receiver sees it.
func sentFrom(t *testing.T, from, to netip.AddrPort, at net.PacketConn) netip.AddrPort {
	t.Helper()
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_, sender, err := readWithin(at, make([]byte, 10))
	if err != nil {
		t.Fatalf("%s to %s: %v", from, to, err)
	}
	a := sender.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
