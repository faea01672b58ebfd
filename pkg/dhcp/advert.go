// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"time"

	"github.com/mdlayher/ndp"
)

// AdvertiseEvery is how often a machine is told without being asked, and routerLifetime for how long it goes by that
// (RFC 4861, section 6.2.1).
const (
	AdvertiseEvery = 10 * time.Minute
	routerLifetime = 3 * AdvertiseEvery
)

// allNodes is the group of all on the link, which beside the host is the machine.
var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = [6]byte{0x33, 0x33, 0, 0, 0, 1}
)

// isSolicitation says whether a router is asked for (RFC 4861, section 6.1.1).
func isSolicitation(f frame) bool {
	if f.protocol != protocolICMPv6 || f.hopLimit != 255 {
		return false
	}
	m, err := ndp.ParseMessage(f.payload)
	_, ok := m.(*ndp.RouterSolicitation)
	return err == nil && ok
}

// Advertisement is the frame that tells the machine of its router, and of DHCPv6; nil = it has no IPv6 address. An address
// that a machine makes for itself is advertised where the endpoint has just that: from any other nothing would pass.
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

// makesItself says whether the machine makes the address out of the prefix and its MAC address.
func (l Lease) makesItself(p Port) bool {
	return l.Subnet.CIDR.Bits() == 64 && eui64(l.Subnet.CIDR.Addr(), p.VM) == l.Addr
}
