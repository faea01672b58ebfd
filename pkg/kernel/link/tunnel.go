// SPDX-License-Identifier: Apache-2.0

package link

import "slices"

// TunnelAlias marks the tunnel devices that the agent may remove.
const TunnelAlias = "calico tunnel"

// The names of tunnels to other hosts.
const (
	VXLAN4 = "vxlan.calico"
	VXLAN6 = "vxlan-v6.calico"
	IPIP   = "tunl0"
)

// TunnelNames returns the names of all tunnels to other hosts, whether these exist or not, sorted.
func TunnelNames() []string { return []string{IPIP, VXLAN6, VXLAN4} }

// IsTunnelName reports whether the name is that of a tunnel to other hosts.
func IsTunnelName(name string) bool { return slices.Contains(TunnelNames(), name) }
