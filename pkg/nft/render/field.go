// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
)

var (
	inName      = table.Field{Text: "iifname", Type: table.TypeInterface, From: table.FromInName}
	inIndex     = table.Field{Text: "iif", Type: table.TypeIndex, From: table.FromInIndex}
	outName     = table.Field{Text: "oifname", Type: table.TypeInterface, From: table.FromOutName}
	nfproto     = table.Field{Text: "meta nfproto", Type: table.TypeNFProto, From: table.FromNFProto}
	l4proto     = table.Field{Text: "meta l4proto", Type: table.TypeProtocol, From: table.FromL4Proto}
	sourcePort  = table.Field{Text: "th sport", Type: table.TypeService, From: table.FromTransport}
	destPort    = table.Field{Text: "th dport", Type: table.TypeService, From: table.FromTransport, Offset: 2}
	etherSource = table.Field{Text: "ether saddr", Type: table.TypeEther, From: table.FromLink, Offset: 6}
	destType    = table.Field{Text: "fib daddr type", Type: table.TypeFibType, From: table.FromFib}
	sourceType  = table.Field{Text: "fib saddr type", Type: table.TypeFibType, From: table.FromFibSource}
	sourceOut   = table.Field{Text: "fib saddr . oif type", Type: table.TypeFibType, From: table.FromFibOut}
	calledIPv4  = table.Field{Text: "ct original ip daddr", Type: table.TypeIPv4, From: table.FromConn}
)

// connEnds returns the ends of the connection that a packet belongs to, or is about: the client and the server, by their own addresses.
func connEnds(version int) [2]table.Field {
	name, kind := "ip saddr", table.TypeIPv4
	if version == 6 {
		name, kind = "ip6 saddr", table.TypeIPv6
	}
	return [...]table.Field{
		{Text: "ct original " + name, Type: kind, From: table.FromCaller},
		{Text: "ct reply " + name, Type: kind, From: table.FromAnswerer},
	}
}

// address returns the source or destination of a packet of the IP version.
func address(version int, destination bool) table.Field {
	f := table.Field{Text: "ip saddr", Type: table.TypeIPv4, From: table.FromNetwork, Offset: 12, Family: table.FamilyIPv4}
	if version == 6 {
		f = table.Field{Text: "ip6 saddr", Type: table.TypeIPv6, From: table.FromNetwork, Offset: 8, Family: table.FamilyIPv6}
	}
	if destination {
		f.Text = strings.Replace(f.Text, "saddr", "daddr", 1)
		f.Offset += uint32(f.Type.Size())
	}
	return f
}

// port returns the source or destination port of a packet of the protocol.
func port(p model.Protocol, destination bool) table.Field {
	name := table.TypeProtocol.Text(string([]byte{byte(p)}))
	if p == 0 {
		name = "th" // any that has ports
	}
	f := table.Field{Text: name + " sport", Type: table.TypeService, From: table.FromTransport, Protocol: byte(p)}
	if destination {
		f.Text, f.Offset = name+" dport", 2
	}
	return f
}

// icmp returns the type or the code of an ICMP message of the IP version.
func icmp(version int, code bool) table.Field {
	f := table.Field{Text: "icmp type", Type: table.TypeICMP, From: table.FromTransport, Family: table.FamilyIPv4, Protocol: byte(model.ProtocolICMP)}
	if version == 6 {
		f = table.Field{Text: "icmpv6 type", Type: table.TypeICMP6, From: table.FromTransport, Family: table.FamilyIPv6, Protocol: byte(model.ProtocolICMPv6)}
	}
	if code {
		f.Text, f.Offset = strings.Replace(f.Text, "type", "code", 1), 1
		f.Type = map[table.Type]table.Type{table.TypeICMP: table.TypeICMPCode, table.TypeICMP6: table.TypeICMP6Code}[f.Type]
	}
	return f
}
