// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/kernel/link"
)

// Gateway returns the next hop of every pod.
func Gateway(v6 bool) netip.Addr {
	if v6 {
		return link.HostGatewayLL()
	}
	return link.HostGateway()
}

// DefaultV4 returns the destination of the IPv4 default route.
func DefaultV4() netip.Prefix { return netip.PrefixFrom(netip.IPv4Unspecified(), 0) }

// DefaultV6 returns the destination of the IPv6 default route.
func DefaultV6() netip.Prefix { return netip.PrefixFrom(netip.IPv6Unspecified(), 0) }

// Families reports whether addrs has IPv4 and IPv6 addresses.
func Families(addrs []netip.Addr) (v4, v6 bool) {
	for _, a := range addrs {
		if a.Is4() {
			v4 = true
		} else {
			v6 = true
		}
	}
	return v4, v6
}

// IPNet converts a prefix for the CNI library.
func IPNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// DNS returns the resolver settings for the container.
func DNS(d netconf.DNS) types.DNS {
	return types.DNS{Nameservers: d.Nameservers, Domain: d.Domain, Search: d.Search, Options: d.Options}
}

// AddrOf converts an address from the CNI library. It reports false if the address is invalid.
func AddrOf(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

// PrefixOf is like AddrOf for networks.
func PrefixOf(n net.IPNet) (netip.Prefix, bool) {
	a, ok := AddrOf(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	if bits == 128 && a.Is4() {
		ones -= 96
	}
	return netip.PrefixFrom(a, ones), ones >= 0
}

// Previous is the result of the ADD, as passed by the runtime.
type Previous struct {
	*types100.Result
	Addrs []netip.Addr // of the pod's interface
	Pod   *types100.Interface
	Host  *types100.Interface
}

// PrevResult parses the result of the ADD.
func PrevResult(conf *netconf.Config, id Identity) (*Previous, error) {
	const hint = "the container runtime must pass the result of the ADD"
	if conf.PrevResult == nil {
		return nil, Failf(CodeConfig, hint, "prevResult: missing")
	}
	// Results before version 1.0.0 may lack their version.
	data := conf.PrevResult
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) == nil && fields != nil && fields["cniVersion"] == nil {
		fields["cniVersion"], _ = json.Marshal(conf.CNIVersion) // a string always marshals
		data, _ = json.Marshal(fields)                          // as does what was JSON
	}
	raw, err := create.Create(conf.CNIVersion, data)
	if err != nil {
		return nil, Failf(CodeDecode, hint, "prevResult: %w", err)
	}
	r, err := types100.GetResult(raw)
	if err == nil {
		err = Complete(r)
	}
	if err != nil {
		return nil, Failf(CodeDecode, hint, "prevResult: %w", err)
	}
	p := &Previous{Result: r}
	index := -1
	for i, link := range r.Interfaces {
		switch {
		case link.Sandbox != "" && link.Name == id.IfName:
			p.Pod, index = link, i
		case link.Sandbox == "" && link.Name == id.HostIf:
			p.Host = link
		}
	}
	for _, ip := range r.IPs {
		if index >= 0 && ip.Interface != nil && *ip.Interface != index {
			continue
		}
		if a, ok := AddrOf(ip.Address.IP); ok {
			p.Addrs = append(p.Addrs, a)
		}
	}
	return p, nil
}

// Complete returns an error if an entry of the result is null.
func Complete(r *types100.Result) error {
	if i := slices.Index(r.Interfaces, nil); i >= 0 {
		return fmt.Errorf("interfaces[%d]: want an object, got null", i)
	}
	if i := slices.Index(r.IPs, nil); i >= 0 {
		return fmt.Errorf("ips[%d]: want an object, got null", i)
	}
	if i := slices.Index(r.Routes, nil); i >= 0 {
		return fmt.Errorf("routes[%d]: want an object, got null", i)
	}
	return nil
}
