// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// Attributes of IP tunnels, linux/if_tunnel.h (IFLA_IPTUN_…).
const (
	iptunLink     = 1
	iptunLocal    = 2
	iptunRemote   = 3
	iptunProto    = 9
	iptunPMTUDisc = 10
)

// ipip adds what makes a device an IPIP tunnel (RFC 2003) to whatever host a
// route names by its gateway: it has neither a remote nor a local address, and
// takes the outer source from the route to the gateway. TTL and TOS are the inner
// packet's.
//
// The kernel makes tunl0 itself where the module ipip is loaded, unless the
// sysctl net.core.fb_tunnels_only_for_init_net says otherwise; asking for the
// kind loads the module. That tunl0 is just so, and its parameters can't be
// changed (ipip_changelink).
func ipip(m *rtnl.Message) {
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.AttrString(unix.IFLA_INFO_KIND, "ipip")
		m.Nest(unix.IFLA_INFO_DATA, func() {
			m.Attr8(iptunProto, unix.IPPROTO_IPIP)
			m.Attr8(iptunPMTUDisc, 1)
		})
	})
}

func (l *tunnelLink) parseIPIP(b []byte) {
	rtnl.Attributes(b, func(kind uint16, data []byte) {
		switch kind {
		case iptunLink:
			l.under = int(rtnl.Uint32(data))
		case iptunLocal:
			if a := rtnl.Addr(data); a.IsValid() && !a.IsUnspecified() {
				l.local = a
			}
		case iptunRemote:
			if a := rtnl.Addr(data); a.IsValid() && !a.IsUnspecified() {
				l.remote = a
			}
		}
	})
}

// bound says whether an IPIP tunnel has ends of its own: then all packets go to
// the one remote, whatever the route's gateway is.
func (l *tunnelLink) bound() bool {
	return l.Kind == "ipip" && (l.local.IsValid() || l.remote.IsValid())
}

// isForeign says whether the device is somebody else's and is left alone.
func (l *tunnelLink) isForeign(t plan.Tunnel) bool {
	return l.Kind != kindOf(t.Kind) || l.bound() && l.Alias != link.TunnelAlias
}
