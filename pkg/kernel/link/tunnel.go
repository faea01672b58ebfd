// SPDX-License-Identifier: Apache-2.0

package link

import "slices"

// TunnelAlias marks the tunnel devices that are ours to remove.
const TunnelAlias = "calico tunnel"

// The names of a Fabric's tunnels.
const (
	VXLAN4 = "vxlan.calico"
	VXLAN6 = "vxlan-v6.calico"
	IPIP   = "tunl0"
)

// TunnelNames are the names of a Fabric's tunnels, whether these are there or not, in order.
func TunnelNames() []string { return []string{IPIP, VXLAN6, VXLAN4} }

// IsTunnelName says whether a link of that name is a Fabric's tunnel, or has the name of one.
func IsTunnelName(name string) bool { return slices.Contains(TunnelNames(), name) }
