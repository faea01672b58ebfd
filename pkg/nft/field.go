// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

const (
	familyIPv4 = 2  // NFPROTO_IPV4
	familyIPv6 = 10 // NFPROTO_IPV6
)

// Flags of TCP, of linux/tcp.h.
const (
	syn          = 0x02
	finSynRstAck = 0x17
)

// Field is a datum of a packet.
type Field struct {
	text     string
	kind     Type
	source   source
	offset   uint32 // in the header
	family   byte   // the packet must be of it, 0 = any
	protocol byte   // the packet must be of it, 0 = any
}

// source is where a field comes from.
type source byte

const (
	fromInName source = iota
	fromOutName
	fromNFProto
	fromL4Proto
	fromLink
	fromNetwork
	fromTransport
	fromFib      // the type of the destination
	fromConn     // the destination of the connection's first packet, as it came
	fromCaller   // and its source
	fromAnswerer // the source of the connection's answers
)

var (
	inName      = Field{text: "iifname", kind: typeInterface, source: fromInName}
	outName     = Field{text: "oifname", kind: typeInterface, source: fromOutName}
	nfproto     = Field{text: "meta nfproto", kind: typeNFProto, source: fromNFProto}
	l4proto     = Field{text: "meta l4proto", kind: typeProtocol, source: fromL4Proto}
	sourcePort  = Field{text: "th sport", kind: typeService, source: fromTransport}
	destPort    = Field{text: "th dport", kind: typeService, source: fromTransport, offset: 2}
	etherSource = Field{text: "ether saddr", kind: typeEther, source: fromLink, offset: 6}
	tcpFlags    = Field{text: "tcp flags", source: fromTransport, offset: 13, protocol: byte(model.ProtocolTCP)}
	destType    = Field{text: "fib daddr type", kind: typeFibType, source: fromFib}
	calledIPv4  = Field{text: "ct original ip daddr", kind: typeIPv4, source: fromConn}
)

// connEnds are those of the connection that a packet is of, or about: who began it, and
// who answers, both by addresses of their own.
func connEnds(version int) [2]Field {
	name, kind := "ip saddr", typeIPv4
	if version == 6 {
		name, kind = "ip6 saddr", typeIPv6
	}
	return [...]Field{
		{text: "ct original " + name, kind: kind, source: fromCaller},
		{text: "ct reply " + name, kind: kind, source: fromAnswerer},
	}
}

// address is the source or destination of a packet of the IP version.
func address(version int, destination bool) Field {
	f := Field{text: "ip saddr", kind: typeIPv4, source: fromNetwork, offset: 12, family: familyIPv4}
	if version == 6 {
		f = Field{text: "ip6 saddr", kind: typeIPv6, source: fromNetwork, offset: 8, family: familyIPv6}
	}
	if destination {
		f.text = strings.Replace(f.text, "saddr", "daddr", 1)
		f.offset += uint32(f.kind.size())
	}
	return f
}

// port is the source or destination port of a packet of the protocol.
func port(p model.Protocol, destination bool) Field {
	f := Field{text: protocolText(byte(p)) + " sport", kind: typeService, source: fromTransport, protocol: byte(p)}
	if destination {
		f.text, f.offset = protocolText(byte(p))+" dport", 2
	}
	return f
}

// icmp is the type or the code of an ICMP message of the IP version.
func icmp(version int, code bool) Field {
	f := Field{text: "icmp type", kind: typeICMP, source: fromTransport, family: familyIPv4, protocol: byte(model.ProtocolICMP)}
	if version == 6 {
		f = Field{text: "icmpv6 type", kind: typeICMP6, source: fromTransport, family: familyIPv6, protocol: byte(model.ProtocolICMPv6)}
	}
	if code {
		f.text, f.offset = strings.Replace(f.text, "type", "code", 1), 1
		f.kind = map[Type]Type{typeICMP: typeICMPCode, typeICMP6: typeICMP6Code}[f.kind]
	}
	return f
}

func kinds(fields []Field) []Type {
	var types []Type
	for _, f := range fields {
		types = append(types, f.kind)
	}
	return types
}

func fieldsText(fields []Field) string {
	var names []string
	for _, f := range fields {
		names = append(names, f.text)
	}
	return strings.Join(names, " . ")
}
