// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Protocol is an IP protocol number; 0 means any.
type Protocol uint8

const (
	ProtocolICMP    Protocol = 1
	ProtocolTCP     Protocol = 6
	ProtocolUDP     Protocol = 17
	ProtocolICMPv6  Protocol = 58
	ProtocolSCTP    Protocol = 132
	ProtocolUDPLite Protocol = 136
)

// Port is a range of ports, both ends included, or the name of a port of the endpoints that the rule is about.
type Port struct {
	Min, Max uint16
	Name     string
}

var errNoPorts = errors.New("want tcp, udp, sctp or udplite: other protocols have no ports")

// ParseProtocol parses a name in upper or lower case, or a decimal number from 1 to 255.
func ParseProtocol(s string) (Protocol, error) {
	if len(s) <= len("udplite") {
		switch strings.ToLower(s) {
		case "icmp":
			return ProtocolICMP, nil
		case "tcp":
			return ProtocolTCP, nil
		case "udp":
			return ProtocolUDP, nil
		case "icmpv6":
			return ProtocolICMPv6, nil
		case "sctp":
			return ProtocolSCTP, nil
		case "udplite":
			return ProtocolUDPLite, nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%.32q: want tcp, udp, icmp, icmpv6, sctp, udplite or a number from 1 to 255", s)
	}
	return Protocol(n), nil
}

// name returns the protocol's name, "" if it has none.
func (p Protocol) name() string {
	switch p {
	case ProtocolICMP:
		return "icmp"
	case ProtocolTCP:
		return "tcp"
	case ProtocolUDP:
		return "udp"
	case ProtocolICMPv6:
		return "icmpv6"
	case ProtocolSCTP:
		return "sctp"
	case ProtocolUDPLite:
		return "udplite"
	}
	return ""
}

// String returns the name, or the number if there is none; "any" for 0.
func (p Protocol) String() string {
	if p == 0 {
		return "any"
	}
	if s := p.name(); s != "" {
		return s
	}
	return strconv.Itoa(int(p))
}

// HasPorts reports whether the protocol has ports that can be matched.
func (p Protocol) HasPorts() bool {
	return p == ProtocolTCP || p == ProtocolUDP || p == ProtocolSCTP || p == ProtocolUDPLite
}

// isExtension reports whether the protocol is an IPv6 extension header that is no IPv4 protocol (RFC 8200, section 4).
// Packet filters skip these headers to match what follows them. They also skip AH (51), which is a protocol in IPv4.
func (p Protocol) isExtension() bool { return p == 43 || p == 44 || p == 60 }

// parseProtocolField reads a name, a number, or a number in a string.
func parseProtocolField(r *reader) (Protocol, error) {
	if r.isNumber() {
		n, err := r.integer(1, 255)
		return Protocol(n), err
	}
	s, err := r.str()
	if err != nil {
		return 0, err
	}
	return ParseProtocol(s)
}

// protocol writes the name, or the number if there is none.
func (w *writer) protocol(p Protocol) {
	if s := p.name(); s != "" {
		w.quote(s)
	} else {
		w.b = strconv.AppendInt(w.b, int64(p), 10)
	}
}

// ParsePort parses "80", "8000:8099" or a name.
func ParsePort(s string) (Port, error) {
	low, high, isRange := strings.Cut(s, ":")
	switch {
	case isRange:
		a, errA := strconv.ParseUint(low, 10, 16)
		b, errB := strconv.ParseUint(high, 10, 16)
		if errA != nil || errB != nil {
			return Port{}, fmt.Errorf("%.64q: want a range of ports like 8000:8099", s)
		}
		if a > b {
			return Port{}, fmt.Errorf("%q: the range ends before it begins", s)
		}
		return Port{Min: uint16(a), Max: uint16(b)}, nil
	case portName(s):
		return Port{Name: s}, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return Port{}, fmt.Errorf("%.64q: want a port from 1 to 65535, a range like 8000:8099 or a name", s)
	}
	return Port{Min: uint16(n), Max: uint16(n)}, nil
}

// portName reports whether s is a valid name: letters, digits, and - _ . inside, with at least one letter, up to 63
// bytes, or the name of the ports of a Service.
func portName(s string) bool {
	most := 63
	if _, _, is := ServiceOf(s); is {
		most += len(servicePort) + 1 + 63
	}
	if s == "" || len(s) > most {
		return false
	}
	letter := false
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			letter = true
		case '0' <= c && c <= '9':
		case c == '-' || c == '_' || c == '.':
			if i == 0 || i == len(s)-1 {
				return false
			}
		default:
			return false
		}
	}
	return letter
}

// String returns the form that ParsePort parses.
func (p Port) String() string {
	switch {
	case p.Name != "":
		return p.Name
	case p.Min == p.Max:
		return strconv.Itoa(int(p.Min))
	}
	return strconv.Itoa(int(p.Min)) + ":" + strconv.Itoa(int(p.Max))
}

func (p Port) check() error {
	switch {
	case p.Name != "" && !portName(p.Name):
		return fmt.Errorf("%.64q: not the name of a port", p.Name)
	case p.Name != "" && (p.Min != 0 || p.Max != 0):
		return fmt.Errorf("%q: a name and numbers", p.Name)
	case p.Min > p.Max:
		return fmt.Errorf("%s: the range ends before it begins", p)
	}
	return nil
}

// parsePortField reads an integer or a string for ParsePort.
func parsePortField(r *reader) (Port, error) {
	if r.isNumber() {
		n, err := r.integer(0, 65535)
		return Port{Min: uint16(n), Max: uint16(n)}, err
	}
	s, err := r.str()
	if err != nil {
		return Port{}, err
	}
	return ParsePort(s)
}

// port writes an integer if possible, else String.
func (w *writer) port(p Port) {
	w.sep()
	if p.Name == "" && p.Min == p.Max {
		w.b = strconv.AppendInt(w.b, int64(p.Min), 10)
	} else {
		w.quote(p.String())
	}
}
