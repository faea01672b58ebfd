// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/calico-go/calico/pkg/model"
)

// answer4 answers a DHCPv4 message.
func (p Port) answer4(in []byte) []byte {
	req, err := dhcpv4.FromBytes(in)
	if err != nil || !p.mayAsk4(req) {
		return nil
	}
	reply := p.reply4(req)
	if reply == nil {
		return nil
	}
	f := frame{
		source: p.Host, destination: p.VM, src: addr(reply.ServerIdentifier()), dst: addr(reply.YourIPAddr),
		protocol: protocolUDP, hopLimit: 64, srcPort: serverPort4, dstPort: clientPort4, payload: reply.ToBytes(),
	}
	// RFC 2131, section 4.1: send to the client's current address, else to the new one unless it can't receive there
	// yet.
	switch ciaddr := addr(req.ClientIPAddr); {
	case reply.MessageType() == dhcpv4.MessageTypeNak:
		f.dst = broadcast
	case !ciaddr.IsUnspecified():
		f.dst = ciaddr
	case req.IsBroadcast():
		f.dst = broadcast
	}
	if f.dst == broadcast {
		f.destination = broadcastMAC
	}
	return f.bytes()
}

// mayAsk4 reports whether a message is the machine's own and not sent through a relay.
func (p Port) mayAsk4(req *dhcpv4.DHCPv4) bool {
	return req.OpCode == dhcpv4.OpcodeBootRequest && req.HWType == iana.HWTypeEthernet && bytes.Equal(req.ClientHWAddr, p.VM[:]) &&
		req.HopCount == 0 && addr(req.GatewayIPAddr).IsUnspecified() && !req.Options.Has(dhcpv4.OptionRelayAgentInformation)
}

// reply4 returns the answer to a message, nil = none.
func (p Port) reply4(req *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	leases := p.leases(false)
	if len(leases) == 0 {
		return nil
	}
	ciaddr := addr(req.ClientIPAddr)
	asked := addr(req.RequestedIPAddress())
	if !asked.IsValid() {
		asked = ciaddr
	}
	has := slices.IndexFunc(leases, func(l Lease) bool { return l.Addr == asked })
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return p.grant4(req, dhcpv4.MessageTypeOffer, leases[max(has, 0)])
	case dhcpv4.MessageTypeRequest:
		server := addr(req.ServerIdentifier())
		switch ours := slices.ContainsFunc(leases, func(l Lease) bool { return l.Subnet.GatewayIP == server }); {
		case server.IsValid() && !ours: // the client has taken another server's offer
			return nil
		case asked.IsUnspecified():
			return nil
		case has < 0:
			return newReply4(req, dhcpv4.MessageTypeNak, leases[0])
		}
		return p.grant4(req, dhcpv4.MessageTypeAck, leases[has])
	case dhcpv4.MessageTypeInform:
		i := slices.IndexFunc(leases, func(l Lease) bool { return l.Addr == ciaddr })
		if i < 0 {
			return nil
		}
		reply := newReply4(req, dhcpv4.MessageTypeAck, leases[i])
		p.inform4(reply, leases[i])
		return reply
	}
	return nil // a released or declined address stays the machine's
}

func newReply4(req *dhcpv4.DHCPv4, what dhcpv4.MessageType, l Lease) *dhcpv4.DHCPv4 {
	reply := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: req.HWType, TransactionID: req.TransactionID, Flags: req.Flags, ClientHWAddr: req.ClientHWAddr,
		Options: dhcpv4.OptionsFromList(dhcpv4.OptMessageType(what), dhcpv4.OptServerIdentifier(l.Subnet.GatewayIP.AsSlice())),
	}
	if id := req.Options.Get(dhcpv4.OptionClientIdentifier); id != nil { // RFC 6842
		reply.UpdateOption(dhcpv4.OptClientIdentifier(id))
	}
	if what != dhcpv4.MessageTypeNak {
		reply.ClientIPAddr = req.ClientIPAddr
	}
	return reply
}

// grant4 returns an offer or an assignment of an address.
func (p Port) grant4(req *dhcpv4.DHCPv4, what dhcpv4.MessageType, l Lease) *dhcpv4.DHCPv4 {
	reply := newReply4(req, what, l)
	if what == dhcpv4.MessageTypeOffer {
		reply.ClientIPAddr = nil
	}
	reply.YourIPAddr = l.Addr.AsSlice()
	reply.UpdateOption(dhcpv4.OptIPAddressLeaseTime(leaseTime))
	reply.UpdateOption(dhcpv4.OptRenewTimeValue(renewTime))
	reply.UpdateOption(dhcpv4.OptRebindingTimeValue(rebindTime))
	p.inform4(reply, l)
	return reply
}

// inform4 adds information beyond the address. A client uses what it asked for, and ignores the rest.
func (p Port) inform4(reply *dhcpv4.DHCPv4, l Lease) {
	reply.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(l.Subnet.CIDR.Bits(), 32)))
	reply.UpdateOption(dhcpv4.OptRouter(l.Subnet.GatewayIP.AsSlice()))
	reply.UpdateOption(dhcpv4.OptClasslessStaticRoute(routes4(l)...))
	if servers := dnsServers([]Lease{l}); len(servers) > 0 {
		reply.UpdateOption(dhcpv4.OptDNS(ips(servers)...))
	}
	host, domain := p.names()
	if host != "" {
		reply.UpdateOption(dhcpv4.OptHostName(host))
	}
	if domain != "" {
		reply.UpdateOption(dhcpv4.OptDomainName(domain))
	}
	if p.MTU > 0 {
		reply.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, binary.BigEndian.AppendUint16(nil, uint16(p.MTU))))
	}
}

// routes4 returns the subnet's routes and, unless included, the default route: a client that uses these ignores the
// router option (RFC 3442). A next hop outside of the machine's network gets an on-link route first.
func routes4(l Lease) []*dhcpv4.Route {
	var routes []*dhcpv4.Route
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	add := func(to netip.Prefix, by netip.Addr) {
		to = to.Masked()
		routes = append(routes, &dhcpv4.Route{Dest: &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), 32)}, Router: by.AsSlice()})
	}
	subnet := l.Subnet.CIDR
	through := slices.Clone(l.Subnet.HostRoutes)
	if !slices.ContainsFunc(through, func(r model.HostRoute) bool { return r.Destination.Bits() == 0 }) {
		through = append(through, model.HostRoute{Destination: all, NextHop: l.Subnet.GatewayIP})
	}
	var onLink []netip.Addr
	for _, r := range through {
		if by := r.NextHop; !slices.Contains(onLink, by) && !by.IsUnspecified() && (!subnet.Contains(by) || subnet.IsSingleIP()) {
			onLink = append(onLink, by)
			add(netip.PrefixFrom(by, by.BitLen()), netip.IPv4Unspecified())
		}
	}
	for _, r := range through {
		add(r.Destination, r.NextHop)
	}
	return routes
}

// addr converts the library's address; the result is invalid if there is none.
func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func ips(addrs []netip.Addr) []net.IP {
	all := make([]net.IP, len(addrs))
	for i, a := range addrs {
		all[i] = a.AsSlice()
	}
	return all
}
