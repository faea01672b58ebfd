// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

// Ping sends one echo request (RFC 792, RFC 4443) from a namespace, nil being
// the current one, and waits for its reply.
func Ping(tb testing.TB, from *pod.Namespace, to netip.Addr) {
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
	_ = conn.SetReadDeadline(time.Now().Add(eventually.Limit))
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
