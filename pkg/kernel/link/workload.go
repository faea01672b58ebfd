// SPDX-License-Identifier: Apache-2.0

package link

import "strings"

// WorkloadAlias begins the alias of each link that the plugin creates for a workload. It is followed by the handle of its addresses,
// <network>.<container>.<interface>, or a hash if that is too long.
const WorkloadAlias = "calico "

// ProbeAlias is the alias of the agent's own workloads' links.
const ProbeAlias = "calico-node's probe"

// IsAnothers reports whether the alias is of a link that the plugin created for another container. For any other alias, and one with a
// hash, it isn't known.
func IsAnothers(alias, container string) bool {
	handle, ours := strings.CutPrefix(alias, WorkloadAlias)
	return ours && container != "" && strings.Contains(handle, ".") && !strings.Contains(handle, "."+container+".")
}

// IsUnnamed reports whether a link may be a workload's but doesn't say whose: older versions of Calico gave it no alias, or the process
// that created it died before it could, which takes a second message to the kernel. Its other end is never on the host: it is created in
// the pod's namespace, and ends with it.
func (l Link) IsUnnamed() bool { return l.Alias == "" && l.Kind == "veth" && !l.BothEndsHere() }
