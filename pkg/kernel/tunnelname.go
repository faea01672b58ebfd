// SPDX-License-Identifier: Apache-2.0

package kernel

import "slices"

// tunnelAlias marks the tunnel devices that are ours to remove.
const tunnelAlias = "calico tunnel"

// TunnelNames are the names of a Fabric's tunnels, whether these are there or not.
func TunnelNames() []string {
	var names []string
	for _, d := range tunnelDevices() {
		names = append(names, d.name)
	}
	slices.Sort(names)
	return names
}

func isFabricDevice(name string) bool {
	for _, d := range tunnelDevices() {
		if d.name == name {
			return true
		}
	}
	return false
}
