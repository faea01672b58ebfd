// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

// RouteProtocol is the protocol number of the routes to this host's workloads: no route with another protocol is ever changed.
const RouteProtocol = 80

// HostMAC is the MAC address of every workload interface's host end. It is the same for all, so that a workload can move to another host
// with its neighbour cache. It need not be unique: the link has only two ends.
func HostMAC() model.MAC { return model.MAC{0xee, 0xee, 0xee, 0xee, 0xee, 0xee} }

// TapMAC is likewise the MAC address of the host's end of every tap. Virtual machines have had it since the first Calico, and must keep it:
// they may be migrated from a host that runs one.
func TapMAC() model.MAC { return model.MAC{0x00, 0x61, 0xfe, 0xed, 0xca, 0xfe} }

// IsTap reports whether a virtual machine is at the other end.
func (l Link) IsTap() bool { return l.Kind == "tun" && !l.MAC.IsZero() }

// HostGateway is the IPv4 next hop of every workload. No interface has the address: the host end answers for it by proxy ARP.
func HostGateway() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 1, 1}) }

// HostGatewayLL is the IPv6 next hop of every workload: the link-local address of the host end.
func HostGatewayLL() netip.Addr { return rtnl.LinkLocal(HostMAC()) }

// ErrDisabledIPv6 says that a host end can't have HostGatewayLL, and what to do.
var ErrDisabledIPv6 = errors.New("IPv6 is disabled on the host: enable it (sysctl net.ipv6.conf.default.disable_ipv6=0 and net.ipv6.conf.all.disable_ipv6=0) or give the workload no IPv6 address")

// TapGatewayLL is the IPv6 next hop of every virtual machine: the link-local address of its tap.
func TapGatewayLL() netip.Addr { return rtnl.LinkLocal(TapMAC()) }

// IsGateway reports whether a workload expects HostGatewayLL at the other end of its link, as the plugin's workloads do.
func (l Link) IsGateway() bool { return l.MAC == HostMAC() }

// GatewayLL is the IPv6 next hop that the workload expects at the host's end of its link; invalid if another program takes care of it.
func (l Link) GatewayLL() netip.Addr {
	switch {
	case l.IsGateway():
		return HostGatewayLL()
	case l.IsTap():
		return TapGatewayLL()
	}
	return netip.Addr{}
}

// AddGateway adds a GatewayLL with its subnet, as the kernel does when a link goes up: the route that a new veth has instead of the subnet
// may be gone as well.
func AddGateway(c *rtnl.Conn, index int, gateway netip.Addr) error {
	return c.AddrReplace(rtnl.Device(index), rtnl.NewAddr(netip.PrefixFrom(gateway, 64)))
}

// RestoreGateway adds HostGatewayLL again to the host end of a workload's link if the plugin created the link and it lost the address; ours
// is false for other links.
func RestoreGateway(host *rtnl.Conn, pod Link) (ours bool, err error) {
	l, err := Get(host, pod.Parent, "")
	if err != nil || !l.IsGateway() || l.Parent != pod.Index {
		return false, nil // another link took the index
	}
	if r, ok := host.Lookup(HostGatewayLL(), l.Index); ok && r.Local {
		return true, nil
	}
	err = AddGateway(host, l.Index, HostGatewayLL())
	if errors.Is(err, unix.EACCES) {
		return true, ErrDisabledIPv6
	}
	if err != nil {
		return true, fmt.Errorf("add %s to the host end %s: %w", HostGatewayLL(), l.Name, err)
	}
	return true, nil
}
