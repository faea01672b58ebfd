// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

func (ep *Endpoint) enforcedWorkload() bool {
	return ep.Workload && ep.Interface != "" && ep.Dropped == ""
}

// view finds the endpoint of an interface.
type view struct {
	s  Settings
	st *State
}

// isWorkload reports whether the name has one of the settings' prefixes, or the interface is shut.
func (v *view) isWorkload(name string) bool {
	return v.hasPrefix(name) || name != "" && name != Loopback && v.isClosed(name)
}

func (v *view) hasPrefix(name string) bool {
	return name != "" && model.IsWorkloadInterface(name, v.s.Prefixes)
}

// workload returns the active endpoint of a workload interface, or nil.
func (v *view) workload(name string) *Endpoint {
	return v.find(func(ep *Endpoint) bool { return ep.enforcedWorkload() && ep.Interface == name })
}

// isClosed reports whether the endpoint of a workload interface is Dropped.
func (v *view) isClosed(name string) bool {
	return v.find(func(ep *Endpoint) bool { return ep.Workload && ep.Interface == name && ep.Dropped != "" }) != nil
}

// host returns the host endpoint for an interface that is not a workload's: the one on it, else the wildcard.
func (v *view) host(name string) *Endpoint {
	if name == Loopback {
		return nil
	}
	of := func(wildcard bool, name string) *Endpoint {
		return v.find(func(ep *Endpoint) bool {
			return !ep.Workload && ep.Dropped == "" && ep.Wildcard == wildcard && ep.Interface == name
		})
	}
	if ep := of(false, name); ep != nil {
		return ep
	}
	return of(true, "")
}

// find returns the wanted endpoint with the lowest path.
func (v *view) find(wanted func(*Endpoint) bool) *Endpoint {
	var found *Endpoint
	for _, ep := range v.st.Endpoints {
		if wanted(ep) && (found == nil || ep.Path < found.Path) {
			found = ep
		}
	}
	return found
}

// isHost reports whether In or Out is the host itself.
func isHost(name string) bool { return name == "" || name == Loopback }

// isTunnel reports whether the packet is a tunnel packet.
func (t *Tunnels) isTunnel(p *Packet) bool {
	return t.VXLANPort != 0 && p.Protocol == model.ProtocolUDP && p.DstPort == t.VXLANPort || t.IPIP && p.Protocol == protocolIPIP && p.Src.Is4()
}

const protocolIPIP model.Protocol = 4 // IP in IP, RFC 2003

// isOtherHost reports whether the address belongs to another host.
func (t *Tunnels) isOtherHost(a netip.Addr) bool {
	return slices.ContainsFunc(t.Hosts, func(h netip.Addr) bool { return h.Unmap().WithZone("") == a })
}

func (p *Packet) isDHCP() bool {
	return p.isUDP4(68, 67) || !p.Src.Is4() && p.Protocol == model.ProtocolUDP && p.SrcPort == 546 && p.DstPort == 547
}

// allDHCPServers is the address to which DHCPv6 clients send (RFC 8415, section 7.1).
var allDHCPServers = netip.MustParseAddr("ff02::1:2")

// asksDHCP reports whether it is DHCP from a client that may have no other address yet: from 0.0.0.0, or over IPv6 from
// a link-local address.
func (p *Packet) asksDHCP() bool {
	if p.Src.Is4() {
		return p.isDHCP() && p.Src.IsUnspecified()
	}
	return p.isDHCP() && p.Src.IsLinkLocalUnicast() && (p.Dst == allDHCPServers || !p.Dst.IsMulticast())
}

// isUDP4 reports whether it is UDP over IPv4 with these ports.
func (p *Packet) isUDP4(from, to uint16) bool {
	return p.Protocol == model.ProtocolUDP && p.Src.Is4() && p.SrcPort == from && p.DstPort == to
}

// isNeighbour reports whether it is neighbour discovery or MLD. A workload is no router.
func (p *Packet) isNeighbour(workload bool) bool {
	if p.Protocol != model.ProtocolICMPv6 || p.Src.Is4() {
		return false
	}
	return p.ICMPType >= 130 && p.ICMPType <= 136 && (p.ICMPType != 134 || !workload) || p.ICMPType == 143
}
