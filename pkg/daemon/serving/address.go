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

// ParseAddress parses host:port or :port; "" and 0 mean off.
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

// ParseHost parses the host of an address: localhost, an IP address that can be listened on, or "" for all addresses.
func ParseHost(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" || s == "localhost" {
		return s, nil
	}
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return "", fmt.Errorf("address %.64q: want an IP address, localhost, or nothing for all", s)
	case a.IsMulticast(): // the kernel accepts it, but no client could connect
		return "", fmt.Errorf("address %s: that of a group: want an IP address of the host, localhost, or nothing for all", a)
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		return "", fmt.Errorf("address %s: it is on each link: want the link with it, as in %s%%eth0", a, a)
	}
	return a.String(), nil
}

// String returns the address to listen on, "" = off.
func (a Address) String() string {
	if !a.Enabled {
		return ""
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}

// clashes reports whether the two can't both be served, as they share a port of an address.
func (a Address) clashes(b Address) bool {
	return a.Enabled && b.Enabled && a.Port == b.Port && (a.covers(b) || b.covers(a))
}

// covers reports whether a listener at a's host also receives connections to b's.
func (a Address) covers(b Address) bool {
	mine, others := a.addr(), b.addr()
	return mine == others || mine == netip.IPv6Unspecified() || mine == netip.IPv4Unspecified() && others.Is4()
}

// addr returns the host as an address. All addresses are those of both families, as for net.Listen.
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
