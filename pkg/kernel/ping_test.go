// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/test/netns"
)

// ping sends one echo request (RFC 792, RFC 4443) from a namespace, nil being
// the current one, and waits for its reply.
func ping(tb testing.TB, from *Namespace, to netip.Addr) {
	tb.Helper()
	network, local, request, reply := "ip4:icmp", "0.0.0.0", byte(8), byte(0)
	if to.Is6() {
		network, local, request, reply = "ip6:ipv6-icmp", "::", 128, 129
	}
	var conn net.PacketConn
	open := func() (err error) {
		conn, err = net.ListenPacket(network, local)
		zone := to.Zone()
		if zone != "" && err == nil {
			// The net package keeps the numbers of links for a minute, whatever the namespace.
			var link *net.Interface
			if link, err = net.InterfaceByName(zone); err == nil {
				zone = strconv.Itoa(link.Index)
			}
		}
		if err == nil {
			// Where the request goes is looked up when it is sent, in the socket's namespace.
			_, err = conn.WriteTo(echoRequest(request), &net.IPAddr{IP: to.AsSlice(), Zone: zone})
		}
		return err
	}
	var err error
	if from == nil {
		err = open()
	} else {
		err = from.Enter(open)
	}
	if conn != nil {
		defer func() { _ = conn.Close() }()
	}
	if err != nil {
		tb.Errorf("ping %s: %v", to, err)
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(netns.Patience))
	for b := make([]byte, 1500); ; {
		n, peer, err := conn.ReadFrom(b)
		if err != nil {
			tb.Errorf("ping %s: %v", to, err)
			return
		}
		// A raw socket sees all that arrives.
		if n >= 8 && b[0] == reply && peer.(*net.IPAddr).IP.Equal(to.AsSlice()) {
			return
		}
	}
}

func echoRequest(kind byte) []byte {
	m := []byte{kind, 0, 0, 0, 0x12, 0x34, 0, 1, 'h', 'e', 'l', 'l', 'o', '!'}
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum)) // of ICMPv6 the kernel fills it in
	return m
}

// Pods ping each other, their host, and what they have for a gateway: of IPv4
// that is an address of the host only where it has no default route.
func TestPodsPing(t *testing.T) {
	for _, defaultRoute := range []bool{false, true} {
		t.Run(fmt.Sprintf("host's default route %v", defaultRoute), func(t *testing.T) {
			netns.Host(t, func() {
				uplink(t)
				gateways := []netip.Addr{link.HostGatewayLL().WithZone("eth0"), link.HostGateway()}
				if defaultRoute {
					netns.IP(t, "route", "add", "default", "via", "192.0.2.254")
					netns.IP(t, "-6", "route", "add", "default", "via", "2001:db8::fe")
					gateways = gateways[:1]
				}
				h := newHostPath(t)
				a, b := wire(t, 1), wire(t, 2)
				mustApply(t, h, a.endpoint, b.endpoint)
				host := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
				for _, pair := range [][2]wired{{a, b}, {b, a}} {
					from, to := pair[0], pair[1]
					for _, targets := range [][]netip.Addr{to.endpoint.Addrs, host, gateways} {
						for _, target := range targets {
							ping(t, from.ns, target)
						}
					}
					for _, target := range to.endpoint.Addrs {
						ping(t, nil, target)
					}
				}
				if r := mustApply(t, h, a.endpoint, b.endpoint); r.Writes != 0 {
					t.Errorf("a second Apply made %d writes", r.Writes)
				}
			})
		})
	}
}

// A host that has no network but its pods' carries them all the same.
func TestPodsPingOnAHostAlone(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		mustApply(t, h, a.endpoint)
		ping(t, a.ns, link.HostGateway())
		ping(t, a.ns, link.HostGatewayLL().WithZone("eth0"))
	})
}
