// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Table is a table of nftables, of family inet. The zero value of each part
// below is empty.
type Table struct {
	Name   string
	Sets   []Set
	Chains []Chain
}

// Chain is a list of rules. One with a hook is a base chain.
type Chain struct {
	Name    string
	Hook    Hook // zero = reached by jumps alone
	Comment string
	Rules   []Rule
}

// Hook is where packets enter a base chain. What no rule decides
// is accepted.
type Hook struct {
	Type, At string // `filter` or `nat`; `prerouting`, …
	Priority string // `raw`, `filter`, `dstnat` or `srcnat`; -100, which nft calls `dstnat` in prerouting alone
}

// Rule does its statements in order until one doesn't match.
type Rule struct {
	Do      []Statement
	Comment string
}

// Set is a named set; where Data is given, a map.
type Set struct {
	Name     string
	Key      []Type // concatenated
	Data     Type   // "" = a set
	Jump     bool   // a verdict map's elements come back; else they go for good
	Count    bool   // each element counts the packets that found it
	Interval bool   // each key is the start of a range, its end in End
	Comment  string
	Elements []Element
}

// Element is in bytes as the kernel has them, the parts of a concatenation
// padded to 4.
type Element struct {
	Key  string
	End  string // first after the range; "" = up to the last there is
	Data string // of a map; the chain to go to, of a verdict map; of a set, a comment
}

// Type is what nftables calls the type of a datum.
type Type string

const (
	typeIPv4      Type = "ipv4_addr"
	typeIPv6      Type = "ipv6_addr"
	typeProtocol  Type = "inet_proto"
	typeService   Type = "inet_service"
	typeInterface Type = "ifname"
	typeEther     Type = "ether_addr"
	typeICMP      Type = "icmp_type"
	typeICMPCode  Type = "icmp_code"
	typeICMP6     Type = "icmpv6_type"
	typeICMP6Code Type = "icmpv6_code"
	typeNFProto   Type = "nf_proto"
	typeVerdict   Type = "verdict"
	typeFibType   Type = "fib_addrtype"
)

// size is that of the datum in bytes.
func (t Type) size() int {
	switch t {
	case typeIPv4, typeFibType:
		return 4
	case typeIPv6, typeInterface:
		return 16
	case typeService:
		return 2
	case typeEther:
		return 6
	}
	return 1
}

// padded is the size in a concatenation, where each part begins at a register.
func (t Type) padded() int { return (t.size() + 3) &^ 3 }

// keySize is the length of a key.
func keySize(types []Type) int {
	if len(types) == 1 {
		return types[0].size()
	}
	n := 0
	for _, t := range types {
		n += t.padded()
	}
	return n
}

// concat makes one key of several data.
func concat(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p)
		for n := len(p); n%4 != 0; n++ {
			b.WriteByte(0)
		}
	}
	return b.String()
}

func addrBytes(a netip.Addr) string { return string(a.AsSlice()) }

func nameBytes(name string) string {
	var b [16]byte
	copy(b[:maxInterface], name)
	return string(b[:])
}

func portBytes(p uint16) string { return string(binary.BigEndian.AppendUint16(nil, p)) }

// text prints one datum.
func (t Type) text(b string) string {
	switch t {
	case typeIPv4, typeIPv6:
		a, _ := netip.AddrFromSlice([]byte(b))
		return a.String()
	case typeInterface:
		return quote(strings.TrimRight(b, "\x00"))
	case typeEther:
		return net.HardwareAddr(b).String()
	case typeService:
		return fmt.Sprint(binary.BigEndian.Uint16([]byte(b)))
	case typeProtocol:
		return protocolText(b[0])
	case typeNFProto:
		return map[byte]string{2: "ipv4", 10: "ipv6"}[b[0]]
	case typeFibType:
		return map[byte]string{1: "unicast", 2: "local"}[b[0]]
	}
	if name := icmpNames(t)[b[0]]; name != "" {
		return name
	}
	return fmt.Sprint(b[0])
}

// icmpNames are what nft calls ICMP types and codes.
func icmpNames(t Type) map[byte]string {
	switch t {
	case typeICMP:
		return map[byte]string{0: "echo-reply", 3: "destination-unreachable", 4: "source-quench", 5: "redirect", 8: "echo-request",
			9: "router-advertisement", 10: "router-solicitation", 11: "time-exceeded", 12: "parameter-problem",
			13: "timestamp-request", 14: "timestamp-reply", 15: "info-request", 16: "info-reply", 17: "address-mask-request", 18: "address-mask-reply"}
	case typeICMP6:
		return map[byte]string{1: "destination-unreachable", 2: "packet-too-big", 3: "time-exceeded", 4: "parameter-problem",
			128: "echo-request", 129: "echo-reply", 130: "mld-listener-query", 131: "mld-listener-report", 132: "mld-listener-done",
			133: "nd-router-solicit", 134: "nd-router-advert", 135: "nd-neighbor-solicit", 136: "nd-neighbor-advert", 137: "nd-redirect",
			138: "router-renumbering", 141: "ind-neighbor-solicit", 142: "ind-neighbor-advert", 143: "mld2-listener-report"}
	case typeICMPCode:
		return map[byte]string{0: "net-unreachable", 1: "host-unreachable", 2: "prot-unreachable", 3: "port-unreachable",
			4: "frag-needed", 9: "net-prohibited", 10: "host-prohibited", 13: "admin-prohibited"}
	case typeICMP6Code:
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

// quote is a string in nft's syntax, which knows no escapes.
func quote(s string) string { return `"` + plain(s) + `"` }

// plain replaces what cannot be written between quotes.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case r < ' ' || r > '~' || r == '\\':
			return '_'
		}
		return r
	}, s)
}

// keyText prints a key of the types given.
func keyText(types []Type, key string) string {
	if len(types) == 1 {
		return types[0].text(key)
	}
	var parts []string
	for _, t := range types {
		parts = append(parts, t.text(key[:t.size()]))
		key = key[t.padded():]
	}
	return strings.Join(parts, " . ")
}

// text prints an element of the set.
func (s *Set) text(e Element) string {
	b := keyText(s.Key, e.Key)
	if s.Interval {
		b = rangeText(s.Key[0], e.Key, e.End)
	}
	if s.Count {
		b += " counter"
	}
	switch {
	case s.Data == "" && e.Data != "":
		return b + " comment " + quote(e.Data)
	case s.Data == "":
		return b
	case s.Data == typeVerdict && s.Jump:
		return b + " : jump " + e.Data
	case s.Data == typeVerdict:
		return b + " : goto " + e.Data
	}
	return b + " : " + s.Data.text(e.Data)
}

// rangeText prints the addresses from start to before end as a prefix where they
// are one.
func rangeText(t Type, start, end string) string {
	last := lastBefore(start, end)
	if p, ok := prefixOf(Element{Key: start, End: end}); ok && !p.IsSingleIP() {
		return p.String()
	}
	if last == start {
		return t.text(start)
	}
	return t.text(start) + "-" + t.text(last)
}

// lastBefore is the last value of a range that ends before end.
func lastBefore(start, end string) string {
	if end == "" {
		return strings.Repeat("\xff", len(start))
	}
	b := []byte(end)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return string(b)
}

// endOf is the first address after a prefix, "" after the last there is.
func endOf(p netip.Prefix) string {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	if a = a.Next(); a.IsValid() {
		return string(a.AsSlice())
	}
	return ""
}

// sorted are the elements in order of their keys.
func sorted(elements []Element) []Element {
	return slices.SortedFunc(slices.Values(elements), func(a, b Element) int { return strings.Compare(a.Key, b.Key) })
}
