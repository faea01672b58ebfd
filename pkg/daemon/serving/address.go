// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net"
	"net/netip"
	"strconv"
)

// Address says whether and where something is served over HTTP.
type Address struct {
	Enabled bool
	Host    string // "" = all addresses
	Port    uint16
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
