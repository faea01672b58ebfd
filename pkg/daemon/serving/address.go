// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Address says whether and where something is served over HTTP.
type Address struct {
	Enabled bool
	Host    string // "" = all addresses
	Port    uint16
}

// ParseAddress reads host:port or :port; nothing and 0 are nowhere.
func ParseAddress(s string) (Address, error) {
	if s = strings.TrimSpace(s); s == "" || s == "0" {
		return Address{}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		host, err = ParseHost(host)
	}
	var n uint64
	if err == nil {
		n, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || n == 0 {
		return Address{}, fmt.Errorf("address %q: want host:port or :port, the host localhost or an IP address of this host, the port 1 to 65535; or 0 for off", s)
	}
	return Address{Enabled: true, Host: host, Port: uint16(n)}, nil
}

// ParseHost reads the host of an address.
func ParseHost(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" || s == "localhost" {
		return s, nil
	}
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return "", fmt.Errorf("address %.64q: want an IP address, localhost, or nothing for all", s)
	case a.IsMulticast(): // the kernel takes it, and nobody could connect
		return "", fmt.Errorf("address %s: that of a group: want an IP address of the host, localhost, or nothing for all", a)
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		return "", fmt.Errorf("address %s: it is on each link: want the link with it, as in %s%%eth0", a, a)
	}
	return a.String(), nil
}

// String returns the address to listen at, "" = nowhere.
func (a Address) String() string {
	if !a.Enabled {
		return ""
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}

// clashes says whether the two can't both be served: one port of one address is to serve each.
func (a Address) clashes(b Address) bool {
	return a.Enabled && b.Enabled && a.Port == b.Port && (a.covers(b) || b.covers(a))
}

// covers says whether what listens at the host of one takes the other's as well.
func (a Address) covers(b Address) bool {
	mine, others := a.addr(), b.addr()
	return mine == others || mine == netip.IPv6Unspecified() || mine == netip.IPv4Unspecified() && others.Is4()
}

// addr is the host as an address; all addresses are those of both families, as net.Listen has it.
func (a Address) addr() netip.Addr {
	switch a.Host {
	case "":
		return netip.IPv6Unspecified()
	case "localhost":
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	addr, _ := netip.ParseAddr(a.Host)
	return addr.Unmap()
}
