// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"time"

	"github.com/mdlayher/ndp"
)

// AdvertiseEvery is how often a machine gets unsolicited advertisements, and routerLifetime how long it relies on one
// (RFC 4861, section 6.2.1).
const (
	AdvertiseEvery = 10 * time.Minute
	routerLifetime = 3 * AdvertiseEvery
)

// allNodes is the group of all nodes on the link; besides the host that is only the machine.
var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = [6]byte{0x33, 0x33, 0, 0, 0, 1}
)

// isSolicitation reports whether the frame is a router solicitation (RFC 4861, section 6.1.1).
func isSolicitation(f frame) bool {
	if f.protocol != protocolICMPv6 || f.hopLimit != 255 {
		return false
	}
	m, err := ndp.ParseMessage(f.payload)
	_, ok := m.(*ndp.RouterSolicitation)
	return err == nil && ok
}

// Advertisement returns the frame that tells the machine about its router and DHCPv6, nil if it has no IPv6 address. It
// announces that the machine may make its own address only if the endpoint has exactly that address: packets from any
// other are dropped.
func (p Port) Advertisement() []byte {
	leases := p.leases(true)
	if len(leases) == 0 {
		return nil
	}
	ra := &ndp.RouterAdvertisement{
		CurrentHopLimit: 64, ManagedConfiguration: true, OtherConfiguration: true, RouterLifetime: routerLifetime,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: p.Host[:]}},
	}
	for _, l := range leases {
		if l.makesItself(p) {
			ra.Options = append(ra.Options, &ndp.PrefixInformation{
				PrefixLength: 64, AutonomousAddressConfiguration: true, ValidLifetime: leaseTime, PreferredLifetime: leaseTime, Prefix: l.Subnet.CIDR.Addr(),
			})
		}
	}
	if p.MTU > 0 {
		ra.Options = append(ra.Options, ndp.NewMTU(uint32(p.MTU)))
	}
	if servers := dnsServers(leases); len(servers) > 0 {
		ra.Options = append(ra.Options, &ndp.RecursiveDNSServer{Lifetime: routerLifetime, Servers: servers})
	}
	if _, domain := p.names(); domain != "" {
		ra.Options = append(ra.Options, &ndp.DNSSearchList{Lifetime: routerLifetime, DomainNames: []string{domain}})
	}
	payload, err := ndp.MarshalMessageChecksum(ra, p.router(), allNodes)
	if err != nil {
		return nil // Check says why
	}
	return frame{
		source: p.Host, destination: allNodesMAC, src: p.router(), dst: allNodes, protocol: protocolICMPv6, hopLimit: 255, payload: payload,
	}.bytes()
}

// makesItself reports whether the machine derives the address from the prefix and its MAC address.
func (l Lease) makesItself(p Port) bool {
	return l.Subnet.CIDR.Bits() == 64 && eui64(l.Subnet.CIDR.Addr(), p.VM) == l.Addr
}
