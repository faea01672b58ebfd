// SPDX-License-Identifier: Apache-2.0

// Package kernel is the Linux network stack: links, addresses, routes,
// neighbours, sysctls, namespaces and connection tracking.
//
// The first half serves the CNI plugin, which makes one veth and leaves: few
// round trips, several rtnetlink messages in each. The second half serves the
// agent, which keeps the whole desired state of the workload interfaces of a
// host: it reads what there is, writes the difference and reads it back.
//
// Functions work in the network namespace of the calling thread. A Namespace
// and a HostPath belong to the namespace they were opened in, whatever thread
// uses them later, and no thread is left in another namespace.
package kernel

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// RouteProtocol is the protocol number of the routes that are ours: no other
// route is ever changed.
const RouteProtocol = 80

// HostMAC is the MAC address of every workload interface's host end. It is the
// same for all, so that a workload may move to another host with its neighbour
// cache, and needs none of its own: the link has two ends.
func HostMAC() model.MAC { return model.MAC{0xee, 0xee, 0xee, 0xee, 0xee, 0xee} }

// HostGateway is the IPv4 next hop of every workload. No interface has the
// address: the host end answers for it by proxy ARP.
func HostGateway() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 1, 1}) }

// HostGatewayLL is the IPv6 next hop of every workload: the link-local address
// of the host end.
func HostGatewayLL() netip.Addr { return linkLocal(HostMAC()) }

// linkLocal is the address of RFC 4291, appendix A.
func linkLocal(m model.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80,
		8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}
