// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// A Protocol is a name such as TCP, or a number.
type Protocol struct{ Number model.Protocol }

// protocolNames are the names that resources use.
var protocolNames = map[model.Protocol]string{
	model.ProtocolTCP: "TCP", model.ProtocolUDP: "UDP", model.ProtocolICMP: "ICMP", model.ProtocolICMPv6: "ICMPv6",
	model.ProtocolSCTP: "SCTP", model.ProtocolUDPLite: "UDPLite",
}

// UnmarshalText accepts a name in any case, or a number.
func (p *Protocol) UnmarshalText(text []byte) (err error) {
	p.Number, err = model.ParseProtocol(string(text))
	return err
}

// MarshalJSON encodes the name, or the number if it has none.
func (p Protocol) MarshalJSON() ([]byte, error) {
	if name := protocolNames[p.Number]; name != "" {
		return []byte(strconv.Quote(name)), nil
	}
	return []byte(strconv.Itoa(int(p.Number))), nil
}

// A Port is a number, a range such as 80:90, or a name.
type Port struct{ model.Port }

// UnmarshalText accepts any of these.
func (p *Port) UnmarshalText(text []byte) (err error) {
	p.Port, err = model.ParsePort(string(text))
	return err
}

// MarshalJSON encodes a single port as a number.
func (p Port) MarshalJSON() ([]byte, error) {
	if p.Name == "" && p.Min == p.Max {
		return []byte(strconv.Itoa(int(p.Min))), nil
	}
	return []byte(strconv.Quote(p.String())), nil
}

// A CIDR is a network; a single address counts as one.
type CIDR struct{ netip.Prefix }

// UnmarshalText accepts a network without host bits, or an address.
func (c *CIDR) UnmarshalText(text []byte) error {
	var n Net
	if err := n.UnmarshalText(text); err != nil {
		return err
	}
	if p, err := netip.ParsePrefix(string(text)); err == nil && p != n.Prefix {
		return fmt.Errorf("%s has host bits set: write %s", p, n.Prefix)
	}
	c.Prefix = n.Prefix
	return nil
}

// A Net is a network of a rule.
type Net struct{ netip.Prefix }

// UnmarshalText accepts an address, or a network, whose host bits it clears.
func (n *Net) UnmarshalText(text []byte) error {
	s := string(text)
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.Is4In6() {
		n.Prefix = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf("%.64q: want a CIDR like 10.0.0.0/8 or fd00::/8", s)
	}
	n.Prefix = p.Masked()
	return nil
}

// An Address is an IP address.
type Address struct{ netip.Addr }

// UnmarshalText accepts an address without zone.
func (a *Address) UnmarshalText(text []byte) error {
	addr, err := netip.ParseAddr(string(text))
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return fmt.Errorf("%.64q: want an IP address", string(text))
	}
	a.Addr = addr
	return nil
}

// A BareAddress is an IP address, without the length of its network.
type BareAddress struct{ netip.Addr }

// UnmarshalText accepts an address with or without that length.
func (a *BareAddress) UnmarshalText(text []byte) error {
	var with InterfaceAddress
	err := with.UnmarshalText(text)
	a.Addr = with.Addr()
	return err
}

// A PeerAddress is the address of a BGP peer, with or without a port.
type PeerAddress struct {
	netip.Addr
	Port uint16 // 0 = none is given
}

// UnmarshalText accepts an address without zone, with or without a port, as [fd00::1]:179.
func (a *PeerAddress) UnmarshalText(text []byte) error {
	if at, err := netip.ParseAddrPort(string(text)); err == nil && at.Port() != 0 {
		a.Port, text = at.Port(), []byte(at.Addr().String())
	}
	var addr Address
	err := addr.UnmarshalText(text)
	a.Addr = addr.Addr
	return err
}

// String returns the address, with its port if it has one.
func (a PeerAddress) String() string {
	if a.Port == 0 {
		return a.Addr.String()
	}
	return netip.AddrPortFrom(a.Addr, a.Port).String()
}

// MarshalText returns the same.
func (a PeerAddress) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// An InterfaceAddress is an address, with or without the length of its network.
type InterfaceAddress struct{ netip.Prefix }

// UnmarshalText accepts both forms.
func (a *InterfaceAddress) UnmarshalText(text []byte) error {
	s := string(text)
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		a.Prefix = netip.PrefixFrom(addr, addr.BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf("%.64q: want an address like 192.0.2.1/24", s)
	}
	a.Prefix = p
	return nil
}

// An ASNumber is a number, or a string such as 1.10.
type ASNumber struct{ model.ASNumber }

// UnmarshalText accepts both forms.
func (n *ASNumber) UnmarshalText(text []byte) (err error) {
	n.ASNumber, err = model.ParseASNumber(string(text))
	return err
}

// MarshalJSON encodes the number.
func (n ASNumber) MarshalJSON() ([]byte, error) { return []byte(n.String()), nil }

// word parses one of several words, in any case.
func word[T ~string](to *T, text []byte, words []string) error {
	for _, w := range words {
		if strings.EqualFold(w, string(text)) {
			*to = T(w)
			return nil
		}
	}
	return fmt.Errorf("%.32q: want %s", string(text), strings.Join(words, ", "))
}

// converted returns the results of to for each element of list; nil stays nil.
func converted[A, B any](list []A, to func(A) B) []B {
	var out []B
	for _, v := range list {
		out = append(out, to(v))
	}
	return out
}

// byFamily divides a list into IPv4 and IPv6.
func byFamily[T any](list []T, is4 func(T) bool) (v4, v6 []T) {
	for _, v := range list {
		if is4(v) {
			v4 = append(v4, v)
		} else {
			v6 = append(v6, v)
		}
	}
	return v4, v6
}

func prefixes(list []CIDR) []netip.Prefix {
	return converted(list, func(c CIDR) netip.Prefix { return c.Prefix })
}

func cidrs(list []netip.Prefix) []CIDR {
	return converted(list, func(p netip.Prefix) CIDR { return CIDR{p} })
}

func netsOf(list []Net) []netip.Prefix {
	return converted(list, func(n Net) netip.Prefix { return n.Prefix })
}

func nets(list []netip.Prefix) []Net {
	return converted(list, func(p netip.Prefix) Net { return Net{p} })
}

func addresses(list []netip.Addr) []Address {
	return converted(list, func(a netip.Addr) Address { return Address{a} })
}

func optionalAddress(a netip.Addr) *Address {
	if !a.IsValid() {
		return nil
	}
	return &Address{a}
}

func (a *Address) orNone() netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	return a.Addr
}

// Count returns a count with its noun, as 1 block, 2 policies.
func Count(n int, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "cy"):
		thing = strings.TrimSuffix(thing, "y") + "ies"
	case strings.HasSuffix(thing, "s"):
		thing += "es"
	default:
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}

// A returns a noun with its indefinite article, as an IPPool.
func A(noun string) string {
	if strings.ContainsRune("AEIO", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
