// SPDX-License-Identifier: Apache-2.0

package rtnl

// AllLinks is the Index for the host as a whole (NETCONFA_IFINDEX_ALL of linux/netconf.h).
const AllLinks = -1

// Netconf is an event about the sysctls of a link, or of the host. The kernel sends none for other sysctls.
type Netconf struct {
	Family byte
	Index  int
	// Forwarding, RPFilter and Proxy (proxy_arp, proxy_ndp) are -1 if the event doesn't have them.
	Forwarding, RPFilter, Proxy int
}

// ParseNetconf parses struct netconfmsg, RTM_NEWNETCONF; false if truncated.
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
