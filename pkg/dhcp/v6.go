// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// answer6 answers a DHCPv6 message from a link-local address. MessageFromBytes rejects relays' messages.
func (p Port) answer6(from netip.Addr, in []byte) []byte {
	req, err := dhcpv6.MessageFromBytes(in)
	if err != nil {
		return nil
	}
	reply := p.reply6(req)
	if reply == nil {
		return nil
	}
	return frame{
		source: p.Host, destination: p.VM, src: p.router(), dst: from, protocol: protocolUDP, hopLimit: 64,
		srcPort: serverPort6, dstPort: clientPort6, payload: reply.ToBytes(),
	}.bytes()
}

// serverID returns the server's identifier: the same on every host, like the tap's MAC address.
func (p Port) serverID() dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: p.Host[:]}
}

// reply6 returns the answer to a message, nil = none.
func (p Port) reply6(req *dhcpv6.Message) *dhcpv6.Message {
	leases := p.leases(true)
	if len(leases) == 0 || !p.mayAsk6(req) {
		return nil
	}
	reply := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply, TransactionID: req.TransactionID}
	if id := req.GetOneOption(dhcpv6.OptionClientID); id != nil {
		reply.AddOption(id)
	}
	reply.AddOption(dhcpv6.OptServerID(p.serverID()))
	switch req.MessageType {
	case dhcpv6.MessageTypeSolicit:
		if req.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
			reply.MessageType = dhcpv6.MessageTypeAdvertise
		} else {
			dhcpv6.WithRapidCommit(reply)
		}
		grant6(req, reply, leases)
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		grant6(req, reply, leases)
	case dhcpv6.MessageTypeConfirm:
		asked := addrs6(req.Options.IANA())
		if len(asked) == 0 {
			return nil // RFC 8415, section 18.3.3
		}
		status := &dhcpv6.OptStatusCode{StatusCode: iana.StatusSuccess}
		if slices.ContainsFunc(asked, func(a netip.Addr) bool { return !hasAddr(leases, a) }) {
			status.StatusCode = iana.StatusNotOnLink
		}
		reply.AddOption(status)
		return reply
	case dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline: // a returned address stays the machine's
		reply.AddOption(&dhcpv6.OptStatusCode{StatusCode: iana.StatusSuccess})
		return reply
	}
	if servers := dnsServers(leases); len(servers) > 0 {
		reply.AddOption(dhcpv6.OptDNS(ips(servers)...))
	}
	if _, domain := p.names(); domain != "" {
		reply.AddOption(dhcpv6.OptDomainSearchList(&rfc1035label.Labels{Labels: []string{domain}}))
	}
	return reply
}

// mayAsk6 reports whether a message is valid for a server (RFC 8415, section 16), and meant for this one.
func (p Port) mayAsk6(req *dhcpv6.Message) bool {
	client, server := req.GetOneOption(dhcpv6.OptionClientID) != nil, req.GetOneOption(dhcpv6.OptionServerID) != nil
	ours := server && p.serverID().Equal(req.Options.ServerID())
	switch req.MessageType {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		return client && !server
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		return client && ours
	case dhcpv6.MessageTypeInformationRequest:
		return (!server || ours) && len(req.Options.IANA()) == 0
	}
	return false
}

// grant6 assigns all addresses to the first association that asks for some, and reports that there are none for the
// others.
func grant6(req, reply *dhcpv6.Message, leases []Lease) {
	none := func(code iana.StatusCode) dhcpv6.Options {
		return dhcpv6.Options{&dhcpv6.OptStatusCode{StatusCode: code}}
	}
	for i, asked := range req.Options.IANA() {
		ia := &dhcpv6.OptIANA{IaId: asked.IaId}
		if i == 0 {
			ia.T1, ia.T2 = renewTime, rebindTime
			for _, l := range leases {
				ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: l.Addr.AsSlice(), PreferredLifetime: leaseTime, ValidLifetime: leaseTime})
			}
		} else {
			ia.Options.Options = none(iana.StatusNoAddrsAvail)
		}
		if req.MessageType != dhcpv6.MessageTypeSolicit {
			for _, a := range addrs6([]*dhcpv6.OptIANA{asked}) {
				if i > 0 || !hasAddr(leases, a) { // it must not be used any more
					ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.AsSlice()})
				}
			}
		}
		reply.AddOption(ia)
	}
	for _, asked := range req.Options.IATA() {
		reply.AddOption(&dhcpv6.OptIATA{IaId: asked.IaId, Options: dhcpv6.IdentityOptions{Options: none(iana.StatusNoAddrsAvail)}})
	}
	for _, asked := range req.Options.IAPD() {
		reply.AddOption(&dhcpv6.OptIAPD{IaId: asked.IaId, Options: dhcpv6.PDOptions{Options: none(iana.StatusNoPrefixAvail)}})
	}
}

// addrs6 returns the addresses in the associations.
func addrs6(associations []*dhcpv6.OptIANA) (all []netip.Addr) {
	for _, ia := range associations {
		for _, a := range ia.Options.Addresses() {
			if ip, ok := netip.AddrFromSlice(a.IPv6Addr); ok {
				all = append(all, ip)
			}
		}
	}
	return all
}

func hasAddr(leases []Lease, a netip.Addr) bool {
	return slices.ContainsFunc(leases, func(l Lease) bool { return l.Addr == a })
}
