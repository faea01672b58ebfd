// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

const (
	serverPort4, clientPort4 = 67, 68
	serverPort6, clientPort6 = 547, 546

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd

	etherLen, ipv4Len, ipv6Len, udpLen = 14, 20, 40, 8

	protocolUDP    = 17
	protocolICMPv6 = 58
)

var (
	broadcastMAC = model.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	broadcast    = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// frame is the relevant part of an Ethernet frame with a complete IP packet, without options or extension headers.
type frame struct {
	source, destination model.MAC
	src, dst            netip.Addr
	protocol            byte
	hopLimit            byte
	srcPort, dstPort    uint16 // of UDP
	payload             []byte // of UDP, otherwise of IP
}

// isUDP4 reports whether it is UDP over IPv4 with these ports.
func (f frame) isUDP4(from, to uint16) bool {
	return f.protocol == protocolUDP && f.src.Is4() && f.srcPort == from && f.dstPort == to
}

// isUDP6 reports whether it is UDP over IPv6 to this port, from any port: a client may choose its own (RFC 8415,
// section 7.2).
func (f frame) isUDP6(to uint16) bool {
	return f.protocol == protocolUDP && f.src.Is6() && f.dstPort == to
}

// parseFrame parses a frame. It doesn't verify checksums: a virtual machine leaves them to hardware that it believes
// exists, and its frames arrive unchanged from memory.
func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < etherLen {
		return f, false
	}
	f.destination, f.source = model.MAC(b[:6]), model.MAC(b[6:12])
	switch binary.BigEndian.Uint16(b[12:]) {
	case etherIPv4:
		ok = f.parseIPv4(b[etherLen:])
	case etherIPv6:
		ok = f.parseIPv6(b[etherLen:])
	}
	return f, ok && (f.protocol != protocolUDP || f.parseUDP())
}

func (f *frame) parseIPv4(b []byte) bool {
	if len(b) < ipv4Len || b[0] != 4<<4|ipv4Len/4 {
		return false
	}
	total, fragment := int(binary.BigEndian.Uint16(b[2:])), binary.BigEndian.Uint16(b[6:])&^0x4000 // DF
	if total < ipv4Len || total > len(b) || fragment != 0 {
		return false
	}
	f.hopLimit, f.protocol = b[8], b[9]
	f.src, f.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	f.payload = b[ipv4Len:total]
	return true
}

func (f *frame) parseIPv6(b []byte) bool {
	if len(b) < ipv6Len || b[0]>>4 != 6 {
		return false
	}
	total := ipv6Len + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return false
	}
	f.protocol, f.hopLimit = b[6], b[7]
	f.src, f.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	f.payload = b[ipv6Len:total]
	return f.src.Is6() && !f.src.Is4In6()
}

func (f *frame) parseUDP() bool {
	b := f.payload
	if len(b) < udpLen {
		return false
	}
	total := int(binary.BigEndian.Uint16(b[4:]))
	if total < udpLen || total > len(b) {
		return false
	}
	f.srcPort, f.dstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	f.payload = b[udpLen:total]
	return true
}

// bytes returns the frame with its checksums.
func (f frame) bytes() []byte {
	b := make([]byte, 0, etherLen+ipv6Len+udpLen+len(f.payload))
	b = append(append(b, f.destination[:]...), f.source[:]...)
	length := len(f.payload)
	if f.protocol == protocolUDP {
		length += udpLen
	}
	if f.src.Is4() {
		b = binary.BigEndian.AppendUint16(b, etherIPv4)
		b = append(b, f.ipv4Header(length)...)
	} else {
		b = binary.BigEndian.AppendUint16(b, etherIPv6)
		b = append(b, 6<<4, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, f.protocol, f.hopLimit)
		b = append(append(b, f.src.AsSlice()...), f.dst.AsSlice()...)
	}
	if f.protocol != protocolUDP {
		return append(b, f.payload...)
	}
	at := len(b)
	for _, v := range []uint16{f.srcPort, f.dstPort, uint16(length), 0} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(b, f.payload...)
	pseudo := append(append(f.src.AsSlice(), f.dst.AsSlice()...), 0, protocolUDP, byte(length>>8), byte(length))
	sum := checksum(pseudo, b[at:])
	if sum == 0 {
		sum = 0xffff // 0 would mean that there is no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(b[at+6:], sum)
	return b
}

func (f frame) ipv4Header(length int) []byte {
	h := make([]byte, ipv4Len)
	h[0], h[8], h[9] = 4<<4|ipv4Len/4, f.hopLimit, f.protocol
	binary.BigEndian.PutUint16(h[2:], uint16(ipv4Len+length))
	copy(h[12:], f.src.AsSlice())
	copy(h[16:], f.dst.AsSlice())
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return h
}

// checksum returns the Internet checksum (RFC 1071) of the parts, all but the last of which must have an even length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for ; len(p) >= 2; p = p[2:] {
			sum += uint32(binary.BigEndian.Uint16(p))
		}
		if len(p) == 1 {
			sum += uint32(p[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
