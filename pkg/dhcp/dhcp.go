// SPDX-License-Identifier: Apache-2.0

// Package dhcp answers a virtual machine that asks for its addresses, with DHCPv4 (RFC 2131), DHCPv6 (RFC 8415) and
// router advertisements (RFC 4861). An answer depends only on the tap and the question: there is no lease database, and
// every host gives the same answer.
package dhcp

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/calico-go/calico/pkg/model"
)

// How long a machine has its addresses, and when it asks again: first the server that assigned them, then any.
const (
	leaseTime  = 24 * time.Hour
	renewTime  = leaseTime / 2
	rebindTime = leaseTime * 7 / 8
)

// Port is a tap that is served.
type Port struct {
	// Host is the address of the tap itself, from which answers come; VM that of the machine behind it, the only one
	// that is answered.
	Host, VM model.MAC
	Leases   []Lease
	FQDN     string // of the machine, "" = don't send any
	MTU      int    // bytes, 0 = don't send any
}

// Lease is an address of the machine, and its subnet.
type Lease struct {
	Addr   netip.Addr
	Subnet model.Subnet
}

// Answer returns the answer to a frame received on the tap, nil if there is none.
func (p Port) Answer(in []byte) []byte {
	f, ok := parseFrame(in)
	if !ok || f.source != p.VM {
		return nil
	}
	switch {
	case f.isUDP4(clientPort4, serverPort4):
		return p.answer4(f.payload)
	case f.isUDP6(serverPort6) && f.src.IsLinkLocalUnicast():
		return p.answer6(f.src, f.payload)
	case isSolicitation(f):
		return p.Advertisement()
	}
	return nil
}

// Declined returns the machine's address that it declines with this frame because another seems to have it. ok is false
// if there is none.
func (p Port) Declined(in []byte) (a netip.Addr, ok bool) {
	f, ok := parseFrame(in)
	if !ok || f.source != p.VM {
		return a, false
	}
	var declined []netip.Addr
	switch {
	case f.isUDP4(clientPort4, serverPort4):
		if req, err := dhcpv4.FromBytes(f.payload); err == nil && p.mayAsk4(req) && req.MessageType() == dhcpv4.MessageTypeDecline {
			declined = []netip.Addr{addr(req.RequestedIPAddress())}
		}
	case f.isUDP6(serverPort6) && f.src.IsLinkLocalUnicast():
		if req, err := dhcpv6.MessageFromBytes(f.payload); err == nil && p.mayAsk6(req) && req.MessageType == dhcpv6.MessageTypeDecline {
			declined = addrs6(req.Options.IANA())
		}
	}
	i := slices.IndexFunc(declined, func(a netip.Addr) bool { return hasAddr(p.Leases, a) })
	if i < 0 {
		return a, false
	}
	return declined[i], true
}

// leases returns the leases of one family.
func (p Port) leases(v6 bool) []Lease {
	return slices.DeleteFunc(slices.Clone(p.Leases), func(l Lease) bool { return l.Addr.Is6() != v6 })
}

// names splits FQDN into the machine's name and its domain.
func (p Port) names() (host, domain string) {
	host, domain, _ = strings.Cut(strings.TrimSuffix(p.FQDN, "."), ".")
	return host, domain
}

// dnsServers returns the servers of the leases' subnets, in order and without duplicates.
func dnsServers(leases []Lease) (all []netip.Addr) {
	for _, l := range leases {
		for _, a := range l.Subnet.DNSServers {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// eui64 returns the address made from a 64-bit prefix and a MAC address (RFC 4291, appendix A).
func eui64(prefix netip.Addr, m model.MAC) netip.Addr {
	a := prefix.As16()
	copy(a[8:], []byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
	return netip.AddrFrom16(a)
}

// router returns the link-local address of the host's end, the machine's gateway for IPv6.
func (p Port) router() netip.Addr { return eui64(netip.MustParseAddr("fe80::"), p.Host) }
