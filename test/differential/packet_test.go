// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// probe is a packet to send.
type probe struct {
	In                 string // port at whose other end it is sent, "" = by the host itself
	MAC                model.MAC
	Src, Dst           netip.Addr
	Protocol           model.Protocol
	SrcPort, DstPort   uint16
	ICMPType, ICMPCode uint8
	TCPFlags           uint8
	Options            bool          // there are some between the IP header and what it carries
	HopByHop           bool          // those of IPv6 are for every hop
	Fragmented         bool          // it comes in two parts
	About              *probe        // the packet that an ICMP error is about, as it left the host
	Ends               [2]netip.Addr // of its connection
	To                 *probe        // that it answers
	// Expect is what connection tracking must make of it if it comes that far,
	// "" = whatever it does.
	Expect string
}

const (
	flagFIN, flagSYN, flagRST, flagACK = 1, 2, 4, 16
)

// String is like "from cali0 (02:…) tcp 10.65.0.1:1024 -> 10.65.1.1:80 flags 2".
func (p probe) String() string {
	var b strings.Builder
	if p.In == "" {
		b.WriteString("from the host: ")
	} else {
		fmt.Fprintf(&b, "from %s (%s): ", p.In, p.MAC)
	}
	fmt.Fprintf(&b, "%s ", p.Protocol)
	switch {
	case p.Protocol.HasPorts():
		fmt.Fprintf(&b, "%s -> %s", netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort))
	case p.icmp():
		fmt.Fprintf(&b, "%s -> %s type %d code %d", p.Src, p.Dst, p.ICMPType, p.ICMPCode)
	default:
		fmt.Fprintf(&b, "%s -> %s", p.Src, p.Dst)
	}
	if p.Protocol == model.ProtocolTCP {
		fmt.Fprintf(&b, " flags %#x", p.TCPFlags)
	}
	if p.Options {
		b.WriteString(" with options")
	}
	if p.HopByHop {
		b.WriteString(" hop by hop")
	}
	if p.Fragmented {
		b.WriteString(" in fragments")
	}
	if p.About != nil {
		fmt.Fprintf(&b, " about [%s]", p.About)
	}
	return b.String()
}

// icmp reports whether it is ICMP of its own IP version.
func (p probe) icmp() bool {
	return p.Protocol == model.ProtocolICMP && p.Src.Is4() || p.Protocol == model.ProtocolICMPv6 && !p.Src.Is4()
}

// packet is the probe as Evaluate takes it.
func (p probe) packet(out string) policy.Packet {
	return policy.Packet{
		In: p.In, Out: out, MAC: p.MAC, Src: p.Src, Dst: p.Dst, Protocol: p.Protocol,
		SrcPort: p.SrcPort, DstPort: p.DstPort, ICMPType: p.ICMPType, ICMPCode: p.ICMPCode, Ends: p.Ends,
	}
}

// Every probe carries a number before a word: at the start of what its protocol
// carries, or at the very end of an ICMP error about another packet. Nothing
// that the kernel makes of it, an ICMP error or a timestamp reply, has both there.
const (
	wordFirst uint32 = 0xca11c0aa
	wordLast  uint32 = 0xca11c0bb
)

func mark(word, id uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, id), word)
}

// bytes is the IP packet.
func (p probe) bytes(id uint32) []byte {
	first := mark(wordFirst, id)
	if p.Fragmented {
		first = append(first, padding...)
	}
	port := func(b []byte) []byte {
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, p.SrcPort), p.DstPort)
	}
	var b []byte
	sum := -1 // where the checksum is
	switch {
	case p.Protocol == model.ProtocolTCP:
		b = append(port(nil), 0, 0, 0, 1, 0, 0, 0, 1, 5<<4, p.TCPFlags, 0xff, 0xff, 0, 0, 0, 0)
		b, sum = append(b, first...), 16
	case p.Protocol == model.ProtocolUDP:
		b = append(port(nil), 0, byte(8+len(first)), 0, 0)
		b, sum = append(b, first...), 6
	case p.Protocol == model.ProtocolUDPLite:
		b = append(port(nil), 0, 0, 0, 0)
		b, sum = append(b, first...), 6
	case p.Protocol == model.ProtocolSCTP: // an INIT with an unknown parameter
		b = append(port(nil), 0, 0, 0, 0, 0, 0, 0, 0)
		b = append(b, 1, 0, 0, 28, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 1)
		b = append(b, first...)
		binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	case p.icmp() && p.About != nil:
		b = append(b, p.ICMPType, p.ICMPCode, 0, 0, 0, 0, 0, 0)
		b = append(b, p.About.bytes(0)...)
		b, sum = append(b, mark(wordLast, id)...), 2
	case p.icmp():
		b = append(b, p.ICMPType, p.ICMPCode, 0, 0, byte(p.SrcPort>>8), byte(p.SrcPort), 0, 1)
		b, sum = append(b, first...), 2
	default:
		b = append(make([]byte, 8), first...)
	}
	pseudo := !p.icmp() || p.Protocol == model.ProtocolICMPv6
	if sum >= 0 {
		covered := b
		if pseudo {
			covered = slices.Concat(p.Src.AsSlice(), p.Dst.AsSlice(), []byte{0, byte(p.Protocol), byte(len(b) >> 8), byte(len(b))}, b)
		}
		v := checksum(covered)
		if v == 0 {
			v = 0xffff
		}
		binary.BigEndian.PutUint16(b[sum:], v)
	}
	return append(p.header(id, len(b)), b...)
}

// header is that of IP before n bytes.
func (p probe) header(id uint32, n int) []byte {
	if p.Src.Is4() {
		var options []byte
		if p.Options {
			options = []byte{1, 1, 1, 0} // no operation, thrice, and the end
		}
		size := 20 + len(options)
		h := []byte{0x40 | byte(size/4), 0, byte((size + n) >> 8), byte(size + n), byte(id >> 8), byte(id) | 1, 0, 0, 64, byte(p.Protocol), 0, 0}
		h = slices.Concat(h, p.Src.AsSlice(), p.Dst.AsSlice(), options)
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return h
	}
	var options []byte
	next := byte(p.Protocol)
	if p.Options {
		options = []byte{next, 0, 1, 4, 0, 0, 0, 0} // destination options: padding
		next = destinationOptions
		if p.HopByHop {
			next = hopByHopOptions
		}
	}
	n += len(options)
	h := []byte{0x60, 0, 0, 0, byte(n >> 8), byte(n), next, 64}
	return slices.Concat(h, p.Src.AsSlice(), p.Dst.AsSlice(), options)
}

// The extension headers of IPv6.
const hopByHopOptions, fragmentHeader, destinationOptions = 0, 44, 60

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// frame is a packet, or a part of one, as it is sent to a port.
func (p probe) frame(to *port, packet []byte) []byte {
	kind := []byte{0x08, 0x00}
	if !p.Src.Is4() {
		kind = []byte{0x86, 0xdd}
	}
	dst := to.mac
	switch {
	case p.Dst.Is4() && p.Dst.IsMulticast():
		a := p.Dst.As4()
		dst = model.MAC{1, 0, 0x5e, a[1] & 0x7f, a[2], a[3]}
	case p.Dst == addr("255.255.255.255"), p.Dst.Is4() && p.Dst.As4()[3] == 255:
		dst = model.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	case p.Dst.IsMulticast():
		a := p.Dst.As16()
		dst = model.MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
	}
	return slices.Concat(dst[:], p.MAC[:], kind, packet)
}

// identify finds the number and the addresses of a packet that is a probe's.
func identify(b []byte) (id uint32, src, dst netip.Addr, port uint16, ok bool) {
	var protocol model.Protocol
	var rest []byte
	switch {
	case len(b) >= 24 && b[0]>>4 == 4:
		protocol, rest = model.Protocol(b[9]), b[min(len(b), 4*int(b[0]&15)):]
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
	case len(b) >= 40 && b[0]>>4 == 6:
		protocol, rest = model.Protocol(b[6]), b[40:]
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
		for (protocol == destinationOptions || protocol == hopByHopOptions || protocol == fragmentHeader) && len(rest) >= 8 {
			protocol, rest = model.Protocol(rest[0]), rest[8:]
		}
	default:
		return 0, src, dst, 0, false
	}
	if len(rest) >= 8 {
		port = binary.BigEndian.Uint16(rest)
		if protocol == model.ProtocolICMP || protocol == model.ProtocolICMPv6 {
			port = binary.BigEndian.Uint16(rest[4:])
		}
	}
	at := 8
	switch protocol {
	case model.ProtocolTCP:
		at = 20
	case model.ProtocolSCTP:
		at = 32
	}
	if len(rest) >= at+8 && binary.BigEndian.Uint32(rest[at+4:]) == wordFirst {
		return binary.BigEndian.Uint32(rest[at:]), src, dst, port, true
	}
	if n := len(rest) - 8; n >= 0 && binary.BigEndian.Uint32(rest[n+4:]) == wordLast {
		return binary.BigEndian.Uint32(rest[n:]), src, dst, port, true
	}
	return 0, src, dst, 0, false
}
