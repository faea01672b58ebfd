// SPDX-License-Identifier: Apache-2.0

package rtnl

// AllLinks is the Index of what the host as a whole does (NETCONFA_IFINDEX_ALL of linux/netconf.h).
const AllLinks = -1

// Netconf is what a notice tells of the sysctls of a link, or of the host. Of others the kernel tells nothing.
type Netconf struct {
	Family byte
	Index  int
	// Forwarding, RPFilter and Proxy (proxy_arp, proxy_ndp) are -1 where it doesn't say.
	Forwarding, RPFilter, Proxy int
}

// ParseNetconf reads struct netconfmsg, RTM_NEWNETCONF; false where it is cut.
func ParseNetconf(b []byte) (Netconf, bool) {
	const sizeof = 4 // a byte, aligned
	if len(b) < sizeof {
		return Netconf{}, false
	}
	n := Netconf{Family: b[0], Forwarding: -1, RPFilter: -1, Proxy: -1}
	fields := [...]*int{1: &n.Index, 2: &n.Forwarding, 3: &n.RPFilter, 5: &n.Proxy} // NETCONFA_…
	Attributes(b[sizeof:], func(kind uint16, data []byte) {
		if int(kind) < len(fields) && fields[kind] != nil {
			*fields[kind] = int(int32(Uint32(data)))
		}
	})
	return n, true
}
