// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha1"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// tunnelType is what is fixed of a kind of tunnel.
type tunnelType struct {
	kind       TunnelKind
	family     int
	device     string // IPIP's may have another name
	overhead   int    // bytes of the headers in front of a packet
	addrConfig string
	mtuConfig  string // the setting
}

// handle is that of the tunnel's own address in IPAM.
func (t tunnelType) handle(host string) string { return string(t.kind) + "-tunnel-addr-" + host }

// inside is what the tunnel leaves of an MTU, 0 of one that isn't known.
func (t tunnelType) inside(mtu int) int {
	if mtu == 0 {
		return 0
	}
	return max(mtu-t.overhead, minMTU)
}

// tunnelTypes are all there are, in the order of State.Tunnels. VXLAN puts
// Ethernet (14), VXLAN (8), UDP (8) and IP (20 or 40) in front, IPIP only IP.
func tunnelTypes() [3]tunnelType {
	return [...]tunnelType{
		{IPIP, 0, "tunl0", 20, "IpInIpTunnelAddr", "IpInIpMtu"},
		{VXLAN4, 0, "vxlan.calico", 50, "IPv4VXLANTunnelAddr", "VXLANMTU"},
		{VXLAN6, 1, "vxlan-v6.calico", 70, "IPv6VXLANTunnelAddr", "VXLANMTUV6"},
	}
}

// OwnTunnels are the tunnels that a host may have, with what is fixed of them:
// kind, device, handle and AddrConfig.
func OwnTunnels(host string) []Tunnel {
	var all []Tunnel
	for _, t := range tunnelTypes() {
		all = append(all, Tunnel{Kind: t.kind, Device: t.device, Handle: t.handle(host), AddrConfig: t.addrConfig})
	}
	return all
}

func isTunnelDevice(name string) bool {
	for _, t := range tunnelTypes() {
		if t.device == name {
			return true
		}
	}
	return false
}

// tunnelMAC is a VXLAN device's address. Every host works it out for every other
// from the name alone, so that nobody must be asked or told.
func tunnelMAC(kind TunnelKind, host string) model.MAC {
	if kind == VXLAN6 {
		host += "-v6"
	}
	sum := sha1.Sum([]byte(host))
	return model.MAC{0x66, sum[0], sum[1], sum[2], sum[3], sum[4]}
}

// linkLocal is the IPv6 address that follows from a MAC (RFC 4291, appendix A).
// Routes through the IPv6 tunnel name it: the kernel takes no gateway that
// another link's subnet has inside.
func linkLocal(m model.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 0x02, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// remote is another host as a tunnel must know it.
func remote(kind TunnelKind, host string, outer netip.Addr) *Remote {
	r := &Remote{RemoteID: RemoteID{kind, outer}, Host: host, Gateway: outer, MAC: tunnelMAC(kind, host)}
	if kind == VXLAN6 {
		r.Gateway = linkLocal(r.MAC)
	}
	return r
}
