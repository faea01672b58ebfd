// SPDX-License-Identifier: Apache-2.0

package link

import "strings"

// WorkloadAlias begins the alias of each link that the plugin makes for a workload. The handle
// of its addresses follows, <network>.<container>.<interface>, or where that is too long a hash.
const WorkloadAlias = "calico "

// ProbeAlias is that of the agent's own workloads.
const ProbeAlias = "calico-node's probe"

// IsAnothers says whether the alias is of a link that the plugin made for another container.
// Of a link with any other alias, and of one with a hash, that isn't known.
func IsAnothers(alias, container string) bool {
	handle, ours := strings.CutPrefix(alias, WorkloadAlias)
	return ours && container != "" && strings.Contains(handle, ".") && !strings.Contains(handle, "."+container+".")
}

// IsUnnamed reports whether a link may be a workload's and doesn't say whose: older versions of Calico gave it no alias, or the
// process that made it died before it could, which takes a second message to the kernel. It never has its other end on the
// host: that is made in the pod's namespace, and ends with it.
func (l Link) IsUnnamed() bool { return l.Alias == "" && l.Kind == "veth" && !l.BothEndsHere() }
