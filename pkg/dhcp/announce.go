// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/mdlayher/ndp"
)

const etherARP = 0x0806

// Announcements are the frames that say to a machine that has come, or whose tap has, at which MAC address its routers are: it may
// know them by another host's. Each IPv4 gateway is announced by ARP (RFC 5227, section 2.3), the router of IPv6 by an unsolicited
// neighbour advertisement (RFC 4861, section 7.2.6).
func (p Port) Announcements() (frames [][]byte) {
	var said []netip.Addr
	for _, l := range p.leases(false) {
		gateway := l.Subnet.GatewayIP
		if !slices.Contains(said, gateway) && !hasAddr(p.Leases, gateway) { // its own would be a conflict to it
			said, frames = append(said, gateway), append(frames, p.announce4(gateway))
		}
	}
	if len(p.leases(true)) == 0 {
		return frames
	}
	payload, err := ndp.MarshalMessageChecksum(&ndp.NeighborAdvertisement{
		Router: true, Override: true, TargetAddress: p.router(),
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: p.Host[:]}},
	}, p.router(), allNodes)
	if err != nil {
		return frames
	}
	return append(frames, frame{
		source: p.Host, destination: allNodesMAC, src: p.router(), dst: allNodes, protocol: protocolICMPv6, hopLimit: 255, payload: payload,
	}.bytes())
}

// announce4 is an ARP request by a gateway for itself.
func (p Port) announce4(gateway netip.Addr) []byte {
	b := append(append([]byte{}, broadcastMAC[:]...), p.Host[:]...)
	for _, v := range []uint16{etherARP, 1, etherIPv4, 6<<8 | 4, 1} { // Ethernet, IPv4, their lengths, a request (RFC 826)
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(append(b, p.Host[:]...), gateway.AsSlice()...)
	return append(append(b, make([]byte, 6)...), gateway.AsSlice()...)
}
