// SPDX-License-Identifier: Apache-2.0

package table

import "strings"

// The families of IP.
const (
	FamilyIPv4 = 2  // NFPROTO_IPV4
	FamilyIPv6 = 10 // NFPROTO_IPV6
)

// Field is a datum of a packet.
type Field struct {
	Text     string // as nft calls it
	Type     Type
	From     source // where it comes from
	Offset   uint32 // in the header
	Family   byte   // the packet must have it, 0 = any
	Protocol byte   // the packet must have it, 0 = any
}

// source is where a field comes from.
type source byte

// The sources of fields.
const (
	FromInName source = iota
	FromInIndex
	FromOutName
	FromNFProto
	FromL4Proto
	FromLink      // the Ethernet header
	FromNetwork   // the IP header
	FromTransport // the header of the protocol over IP
	FromFib       // the type of the destination address
	FromFibSource // the type of the source address
	FromFibOut    // its type for the outgoing interface: local only to the interface that has it
	FromConn      // the destination of the connection's first packet, as it arrived
	FromCaller    // and its source
	FromAnswerer  // the source of the connection's answers
)

// TypesOf returns the types of fields.
func TypesOf(fields []Field) []Type {
	var types []Type
	for _, f := range fields {
		types = append(types, f.Type)
	}
	return types
}

func fieldsText(fields []Field) string {
	var names []string
	for _, f := range fields {
		names = append(names, f.Text)
	}
	return strings.Join(names, " . ")
}
