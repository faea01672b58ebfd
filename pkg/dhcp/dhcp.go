// SPDX-License-Identifier: Apache-2.0

// Package dhcp answers a virtual machine that asks for its addresses: by DHCPv4 (RFC 2131), DHCPv6 (RFC 8415) and router
// advertisements (RFC 4861). An answer follows from the tap, what is asked and nothing else: there is no lease database,
// and any host gives the same.
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

// For how long a machine has its addresses, and when it asks again: the server that gave them, then any.
const (
	leaseTime  = 24 * time.Hour
	renewTime  = leaseTime / 2
	rebindTime = leaseTime * 7 / 8
)

// Port is a tap as it is served.
type Port struct {
	// Host is the address of the tap itself, from which answers come; VM that of the machine behind it, which alone is answered.
	Host, VM model.MAC
	Leases   []Lease
	FQDN     string // of the machine, "" = it is told none
	MTU      int    // bytes, 0 = it is told none
}

// Lease is an address of the machine, and what it is told of the network.
type Lease struct {
	Addr   netip.Addr
	Subnet model.Subnet
}

// Answer is the frame that answers one which came in by the tap; nil = nothing is to be said.
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

// Declined is the address of the machine's that it declines by a frame, as another seems to have it; ok is false where it declines none.
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

// leases are those of one family.
func (p Port) leases(v6 bool) []Lease {
	return slices.DeleteFunc(slices.Clone(p.Leases), func(l Lease) bool { return l.Addr.Is6() != v6 })
}

// names are what FQDN says: the machine's own, and its domain's.
func (p Port) names() (host, domain string) {
	host, domain, _ = strings.Cut(strings.TrimSuffix(p.FQDN, "."), ".")
	return host, domain
}

// dnsServers are those of some leases' subnets, each once, in their order.
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

// eui64 is the address that a MAC address has in a prefix of 64 bits (RFC 4291, appendix A).
func eui64(prefix netip.Addr, m model.MAC) netip.Addr {
	a := prefix.As16()
	copy(a[8:], []byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
	return netip.AddrFrom16(a)
}

// router is the link-local address of the host's end, by which the machine reaches everything over IPv6.
func (p Port) router() netip.Addr { return eui64(netip.MustParseAddr("fe80::"), p.Host) }
