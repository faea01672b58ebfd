// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/mdlayher/ndp"
)

const etherARP = 0x0806

// Announcements returns frames that tell a machine which has just arrived, or whose tap has, the MAC address of its
// routers: it may know them by another host's. Each IPv4 gateway is announced by ARP (RFC 5227, section 2.3), the IPv6
// router by an unsolicited neighbour advertisement (RFC 4861, section 7.2.6).
func (p Port) Announcements() (frames [][]byte) {
	var said []netip.Addr
	for _, l := range p.leases(false) {
		gateway := l.Subnet.GatewayIP
		if !slices.Contains(said, gateway) && !hasAddr(p.Leases, gateway) { // the machine would see its own address as a conflict
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

// announce4 returns an ARP request by a gateway for itself.
func (p Port) announce4(gateway netip.Addr) []byte {
	b := append(append([]byte{}, broadcastMAC[:]...), p.Host[:]...)
	for _, v := range []uint16{etherARP, 1, etherIPv4, 6<<8 | 4, 1} { // Ethernet, IPv4, their lengths, a request (RFC 826)
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(append(b, p.Host[:]...), gateway.AsSlice()...)
	return append(append(b, make([]byte, 6)...), gateway.AsSlice()...)
}
