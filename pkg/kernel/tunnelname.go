// SPDX-License-Identifier: Apache-2.0

package kernel

import "slices"

// tunnelAlias marks the tunnel devices that are ours to remove.
const tunnelAlias = "calico tunnel"

// The names of a Fabric's tunnels.
const (
	vxlan4 = "vxlan.calico"
	vxlan6 = "vxlan-v6.calico"
	ipipIn = "tunl0"
)

// TunnelNames are the names of a Fabric's tunnels, whether these are there or not, in order.
func TunnelNames() []string { return []string{ipipIn, vxlan6, vxlan4} }

// isFabricDevice says whether a link of that name is a Fabric's tunnel, or has the name of one.
func isFabricDevice(name string) bool { return slices.Contains(TunnelNames(), name) }
