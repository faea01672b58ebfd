// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net"
	"net/netip"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// result says what an ADD has made. Its first interface is the host's end, its
// second the pod's, which has every address.
func (s *session) result(id identity, mac model.MAC, mtu int, addrs []netip.Addr, routes []*types.Route, d types.DNS) types.Result {
	r := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: id.hostIf, Mac: link.HostMAC().String(), Mtu: mtu},
			{Name: id.ifName, Mac: mac.String(), Mtu: mtu, Sandbox: s.env.netns},
		},
		Routes: routes,
		DNS:    d,
	}
	for _, a := range addrs {
		r.IPs = append(r.IPs, &types100.IPConfig{
			Interface: types100.Int(1),
			Address:   ipNet(netip.PrefixFrom(a, a.BitLen())),
			Gateway:   gateway(a.Is6()).AsSlice(),
		})
	}
	return r
}

// gateway is the next hop of every pod.
func gateway(v6 bool) netip.Addr {
	if v6 {
		return link.HostGatewayLL()
	}
	return link.HostGateway()
}

func defaultV4() netip.Prefix { return netip.PrefixFrom(netip.IPv4Unspecified(), 0) }
func defaultV6() netip.Prefix { return netip.PrefixFrom(netip.IPv6Unspecified(), 0) }

func families(addrs []netip.Addr) (v4, v6 bool) {
	for _, a := range addrs {
		if a.Is4() {
			v4 = true
		} else {
			v6 = true
		}
	}
	return v4, v6
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func dns(d netconf.DNS) types.DNS {
	return types.DNS{Nameservers: d.Nameservers, Domain: d.Domain, Search: d.Search, Options: d.Options}
}

// addrOf converts what the CNI library gives.
func addrOf(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

func prefixOf(n net.IPNet) (netip.Prefix, bool) {
	a, ok := addrOf(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	if bits == 128 && a.Is4() {
		ones -= 96
	}
	return netip.PrefixFrom(a, ones), ones >= 0
}
