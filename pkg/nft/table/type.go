// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Type is the type of a datum, as nftables calls it.
type Type string

// The types that we match and keep in sets.
const (
	TypeIPv4      Type = "ipv4_addr"
	TypeIPv6      Type = "ipv6_addr"
	TypeProtocol  Type = "inet_proto"
	TypeService   Type = "inet_service"
	TypeInterface Type = "ifname"
	TypeIndex     Type = "iface_index"
	TypeEther     Type = "ether_addr"
	TypeICMP      Type = "icmp_type"
	TypeICMPCode  Type = "icmp_code"
	TypeICMP6     Type = "icmpv6_type"
	TypeICMP6Code Type = "icmpv6_code"
	TypeNFProto   Type = "nf_proto"
	TypeVerdict   Type = "verdict"
	TypeFibType   Type = "fib_addrtype"
	TypeVNI       Type = "integer" // of 3 bytes
)

// Size returns the size of a datum in bytes.
func (t Type) Size() int {
	switch t {
	case TypeIPv4, TypeFibType, TypeIndex:
		return 4
	case TypeIPv6, TypeInterface:
		return 16
	case TypeService:
		return 2
	case TypeVNI:
		return 3
	case TypeEther:
		return 6
	}
	return 1
}

// Padded returns the size in a concatenation, where each part begins at a register.
func (t Type) Padded() int { return (t.Size() + 3) &^ 3 }

// KeySize returns the length of a key.
func KeySize(types []Type) int {
	if len(types) == 1 {
		return types[0].Size()
	}
	n := 0
	for _, t := range types {
		n += t.Padded()
	}
	return n
}

// Text prints one datum, given in bytes.
func (t Type) Text(b string) string {
	switch t {
	case TypeIPv4, TypeIPv6:
		a, _ := netip.AddrFromSlice([]byte(b))
		return a.String()
	case TypeInterface:
		return quote(strings.TrimRight(b, "\x00"))
	case TypeIndex:
		return fmt.Sprint(binary.NativeEndian.Uint32([]byte(b)))
	case TypeEther:
		var m model.MAC
		copy(m[:], b)
		return m.String()
	case TypeService:
		return fmt.Sprint(binary.BigEndian.Uint16([]byte(b)))
	case TypeVNI:
		return fmt.Sprint(binary.BigEndian.Uint32([]byte("\x00" + b)))
	case TypeProtocol:
		return protocolText(b[0])
	case TypeNFProto:
		return map[byte]string{2: "ipv4", 10: "ipv6"}[b[0]]
	case TypeFibType:
		return map[byte]string{1: "unicast", 2: "local"}[b[0]]
	}
	if name := icmpNames(t)[b[0]]; name != "" {
		return name
	}
	return fmt.Sprint(b[0])
}

// icmpNames returns nft's names of ICMP types and codes.
func icmpNames(t Type) map[byte]string {
	switch t {
	case TypeICMP:
		return map[byte]string{0: "echo-reply", 3: "destination-unreachable", 4: "source-quench", 5: "redirect", 8: "echo-request",
			9: "router-advertisement", 10: "router-solicitation", 11: "time-exceeded", 12: "parameter-problem",
			13: "timestamp-request", 14: "timestamp-reply", 15: "info-request", 16: "info-reply", 17: "address-mask-request", 18: "address-mask-reply"}
	case TypeICMP6:
		return map[byte]string{1: "destination-unreachable", 2: "packet-too-big", 3: "time-exceeded", 4: "parameter-problem",
			128: "echo-request", 129: "echo-reply", 130: "mld-listener-query", 131: "mld-listener-report", 132: "mld-listener-done",
			133: "nd-router-solicit", 134: "nd-router-advert", 135: "nd-neighbor-solicit", 136: "nd-neighbor-advert", 137: "nd-redirect",
			138: "router-renumbering", 141: "ind-neighbor-solicit", 142: "ind-neighbor-advert", 143: "mld2-listener-report"}
	case TypeICMPCode:
		return map[byte]string{0: "net-unreachable", 1: "host-unreachable", 2: "prot-unreachable", 3: "port-unreachable",
			4: "frag-needed", 9: "net-prohibited", 10: "host-prohibited", 13: "admin-prohibited"}
	case TypeICMP6Code:
		return map[byte]string{0: "no-route", 1: "admin-prohibited", 3: "addr-unreachable", 4: "port-unreachable", 5: "policy-fail", 6: "reject-route"}
	}
	return nil
}

func protocolText(p byte) string {
	switch p {
	case 1:
		return "icmp"
	case 4:
		return "ipencap"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 58:
		return "ipv6-icmp"
	case 132:
		return "sctp"
	case 136:
		return "udplite"
	}
	return fmt.Sprint(p)
}

// KeyText prints a key of the given types.
func KeyText(types []Type, key string) string {
	if len(types) == 1 {
		return types[0].Text(key)
	}
	var parts []string
	for _, t := range types {
		parts = append(parts, t.Text(key[:t.Size()]))
		key = key[t.Padded():]
	}
	return strings.Join(parts, " . ")
}
