// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/calico-go/calico/pkg/model"
)

// IsServed reports whether an endpoint names subnets. Other endpoints get their addresses by other means.
func IsServed(ep model.WorkloadEndpoint) bool { return len(ep.IPv4SubnetIDs)+len(ep.IPv6SubnetIDs) > 0 }

// NewPort returns the port of an endpoint that IsServed, for a tap with the MAC address host. subnet returns an error
// for a subnet that can't be read or doesn't exist. The port has the leases of each family without errors.
func NewPort(ep model.WorkloadEndpoint, host model.MAC, subnet func(id string) (model.Subnet, error)) (Port, error) {
	p := Port{Host: host, VM: ep.MAC, FQDN: ep.FQDN, MTU: ep.MTU}
	if p.VM.IsZero() {
		return Port{}, errors.New("mac: missing: a machine is known by its tap and its MAC address")
	}
	if err := checkFQDN(p.FQDN); err != nil {
		return Port{}, fmt.Errorf("fqdn: %w", err)
	}
	v4, err4 := leasesOf("ipv4", ep.IPv4Nets, ep.IPv4SubnetIDs, subnet)
	v6, err6 := leasesOf("ipv6", ep.IPv6Nets, ep.IPv6SubnetIDs, subnet)
	if p.Leases = v4; err4 == nil {
		err4 = p.checkSize4()
	}
	if p.Leases = v6; err6 == nil {
		err6 = p.checkSize6()
	}
	p.Leases = nil
	if err4 == nil {
		p.Leases = v4
	}
	if err6 == nil {
		p.Leases = append(p.Leases, v6...)
	}
	return p, errors.Join(err4, err6)
}

// leasesOf returns the leases of one family. ids has the subnet of each of nets.
func leasesOf(family string, nets []netip.Prefix, ids []string, subnet func(id string) (model.Subnet, error)) (leases []Lease, err error) {
	if len(ids) > 0 && len(ids) != len(nets) {
		return nil, fmt.Errorf("%s_subnet_ids: %d for %d of %s_nets: want one for each", family, len(ids), len(nets), family)
	}
	for i, id := range ids {
		s, err := subnet(id)
		if err == nil && !s.CIDR.Contains(nets[i].Addr()) {
			err = fmt.Errorf("its cidr is %s, which %s isn't in", s.CIDR, nets[i].Addr())
		}
		if err != nil {
			return nil, fmt.Errorf("%s_subnet_ids[%d]: subnet %.64q: %w", family, i, id, err)
		}
		leases = append(leases, Lease{nets[i].Addr(), s})
	}
	return leases, nil
}

// checkFQDN accepts valid host names only (RFC 1123, section 2.1), since clients pass the name to scripts.
func checkFQDN(name string) error {
	if name == "" {
		return nil
	}
	if len(name) > 253 {
		return fmt.Errorf("%d bytes: at most 253", len(name))
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		odd := strings.ContainsFunc(label, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
		})
		if odd || label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%.64q: want labels of up to 63 letters, digits and hyphens, with dots between", name)
		}
	}
	return nil
}

// limit returns the maximum size of a packet to the machine. slack is the space for what repeats the request.
func (p Port) limit() int {
	if p.MTU > 0 {
		return p.MTU
	}
	return 1500
}

const slack = 128

// checkSize4 and checkSize6 check that everything the machine may be told fits into one packet. An unset MTU may become
// known later.
func (p Port) checkSize4() error {
	limit := p.limit()
	p.MTU = limit
	for _, l := range p.leases(false) {
		ack := p.grant4(&dhcpv4.DHCPv4{}, dhcpv4.MessageTypeAck, l)
		if n := ipv4Len + udpLen + len(ack.ToBytes()) + slack; n > limit {
			return fmt.Errorf("subnet %s: what DHCP is to tell takes %d bytes, and the MTU is %d: give it fewer host_routes and dns_servers", l.Subnet.CIDR, n, limit)
		}
	}
	return nil
}

func (p Port) checkSize6() error {
	limit := p.limit()
	p.MTU = limit
	if len(p.leases(true)) == 0 {
		return nil
	}
	solicit := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeSolicit}
	solicit.AddOption(dhcpv6.OptClientID(p.serverID()))
	solicit.AddOption(&dhcpv6.OptIANA{})
	n := max(len(p.Advertisement())-etherLen, ipv6Len+udpLen+len(p.reply6(solicit).ToBytes())+slack)
	if n > limit || p.Advertisement() == nil {
		return fmt.Errorf("what DHCPv6 and the router advertisement are to tell takes %d bytes, and the MTU is %d: give the subnets fewer dns_servers", n, limit)
	}
	return nil
}
