// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// HostRoute is a route that machines are given by DHCP.
type HostRoute struct {
	Destination CIDR    `json:"destination" doc:"A network."`
	NextHop     Address `json:"nexthop" doc:"Its next hop."`
}

// DHCPSubnet (ours) is what DHCP gives the virtual machines of a network.
type DHCPSubnet struct {
	CIDR       CIDR        `json:"cidr" doc:"The network."`
	GatewayIP  *Address    `json:"gatewayIP,omitempty" doc:"The machines' next hop. Required for IPv4; that of IPv6 is link-local."`
	NetworkID  string      `json:"networkID,omitempty" doc:"Name of the network. Default calico."`
	DNSServers []Address   `json:"dnsServers,omitempty" doc:"Their DNS servers."`
	HostRoutes []HostRoute `json:"hostRoutes,omitempty" doc:"Further routes of theirs."`
}

var dhcpSubnetKind = newKind(one(readSubnet), writeSubnet, Kind{
	Name: "DHCPSubnet", Plural: "DHCPSubnets", Aliases: []string{"subnet", "subnets"},
	ranges: prefix(model.SubnetPrefix()), of: keyed[model.DHCPSubnetKey],
	words: []string{"gateway_ip", "gatewayIP", "network_id", "networkID"},
	Columns: []Column{
		cell("CIDR", false, func(s *DHCPSubnet) string { return s.CIDR.String() }),
		cell("GATEWAY", false, func(s *DHCPSubnet) string { return text(s.GatewayIP) }),
		cell("NETWORK", true, func(s *DHCPSubnet) string { return s.NetworkID }),
	},
	custom: &custom{columns: []string{"CIDR", "cidr", "Gateway", "gatewayIP"}},
	narrow: func(r Resource) []model.Range { return keyRanges(model.DHCPSubnetKey{ID: r.Metadata.Name}) },
})

func readSubnet(key model.DHCPSubnetKey, n *model.Subnet, s *Stored) *DHCPSubnet {
	s.Metadata.Name = key.ID
	if n == nil {
		return &DHCPSubnet{}
	}
	spec := &DHCPSubnet{CIDR: CIDR{n.CIDR}, GatewayIP: optionalAddress(n.GatewayIP), NetworkID: n.NetworkID, DNSServers: addresses(n.DNSServers)}
	spec.HostRoutes = converted(n.HostRoutes, func(h model.HostRoute) HostRoute { return HostRoute{CIDR{h.Destination}, Address{h.NextHop}} })
	return spec
}

func writeSubnet(r writing[DHCPSubnet]) (keys, error) {
	spec := r.spec
	switch {
	case !spec.CIDR.IsValid():
		return keys{}, r.at("spec.cidr", "missing")
	case spec.GatewayIP == nil && spec.CIDR.Addr().Is4():
		return keys{}, r.at("spec.gatewayIP", "missing")
	}
	n := model.Subnet{NetworkID: cmp.Or(spec.NetworkID, "calico"), CIDR: spec.CIDR.Prefix, GatewayIP: spec.GatewayIP.orNone(), Meta: r.meta}
	n.DNSServers = converted(spec.DNSServers, func(a Address) netip.Addr { return a.Addr })
	n.HostRoutes = converted(spec.HostRoutes, func(h HostRoute) model.HostRoute {
		return model.HostRoute{Destination: h.Destination.Prefix, NextHop: h.NextHop.Addr}
	})
	return put(model.DHCPSubnetKey{ID: r.Metadata.Name}, n), nil
}
