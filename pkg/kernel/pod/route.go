// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// Route is a route inside a workload.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr // invalid: Configure takes the host end, unless it is OnLink; Read found a route without one
	Table   uint32     // 0 = main
	Metric  uint32     // 0 = the kernel's, or after another link's

	// Of the others Read tells nothing.
	MTU    uint32 // on the way to the destination, 0 = the link's. One that isn't below that is left out
	AdvMSS uint32 // that TCP advertises, 0 = what follows from the MTU
	Scope  uint8  // of IPv4; IPv6 has none
}

// OnLink reports whether the route's scope leaves no room for a gateway: destinations are
// neighbours, for all of which the host end answers.
func (r Route) OnLink() bool { return r.Dst.Addr().Is4() && r.Scope >= unix.RT_SCOPE_LINK }

// String says which route it is.
func (r Route) String() string {
	text := "route to " + r.Dst.String()
	if r.Gateway.IsValid() {
		text += " by " + r.Gateway.String()
	}
	if !r.isMain() {
		text += fmt.Sprintf(" of table %d", r.Table)
	}
	if r.Metric != 0 {
		text += fmt.Sprintf(" with metric %d", r.Metric)
	}
	return text
}

// isMain reports whether the route is of the main table.
func (r Route) isMain() bool { return r.Table == 0 }

// The bounds of what a Route may have.
const (
	minMTU4   = 68 // RFC 791
	minMTU6   = 1280
	maxMTU    = 65535
	maxAdvMSS = 65535 - 40 // net/ipv4/metrics.c lowers what is more
	// ownTables is how many tables from besideTable on are ours.
	ownTables = 1 << 16
)

// Check refuses what the kernel would, or what would lead nowhere.
func (r Route) Check() error {
	dst := r.Dst.Addr()
	least := uint32(minMTU6)
	if dst.Is4() {
		least = minMTU4
	}
	switch {
	case !r.Dst.IsValid() || r.Gateway.IsValid() && r.Gateway.Is4() != dst.Is4():
		return fmt.Errorf("route to %s by %s: not of one family", r.Dst, r.Gateway)
	case r.MTU != 0 && (r.MTU < least || r.MTU > maxMTU):
		return fmt.Errorf("route to %s: mtu %d: want %d to %d", r.Dst, r.MTU, least, maxMTU)
	case r.AdvMSS > maxAdvMSS:
		return fmt.Errorf("route to %s: advmss %d: at most %d", r.Dst, r.AdvMSS, maxAdvMSS)
	case r.Table == unix.RT_TABLE_LOCAL:
		return fmt.Errorf("route to %s: table %d is the kernel's, of local addresses: want another, or none for the main one", r.Dst, r.Table)
	case r.Table >= besideTable && r.Table < besideTable+ownTables:
		return fmt.Errorf("route to %s: table %d: those from %d to %d are for a container's later interfaces: want another", r.Dst, r.Table,
			besideTable, besideTable+ownTables-1)
	}
	switch r.Scope {
	case unix.RT_SCOPE_UNIVERSE, unix.RT_SCOPE_SITE:
	case unix.RT_SCOPE_LINK, unix.RT_SCOPE_HOST:
		if r.Gateway.IsValid() && dst.Is4() {
			return fmt.Errorf("route to %s: scope %d has no gateway, and it names %s: drop one of the two", r.Dst, r.Scope, r.Gateway)
		}
	default:
		return fmt.Errorf("route to %s: scope %d: want %d (global), %d (site), %d (link) or %d (host)", r.Dst, r.Scope,
			unix.RT_SCOPE_UNIVERSE, unix.RT_SCOPE_SITE, unix.RT_SCOPE_LINK, unix.RT_SCOPE_HOST)
	}
	return nil
}

// within leaves out the MTU of routes that have no less than the link. The kernel would believe them,
// also when the link's shrinks, and what is larger than the link takes is lost.
func within(routes []Route, mtu int) []Route {
	var out []Route
	for _, r := range routes {
		if int(r.MTU) >= mtu {
			r.MTU = 0
		}
		out = append(out, r)
	}
	return out
}

// addRoute adds a route; one without a gateway is for the link itself. The flag says
// what becomes of one that there is, metric 0 is the family's own.
func addRoute(index int, r Route, metric uint32, flag uint16) *rtnl.Message {
	scope := r.Scope
	if !r.Gateway.IsValid() && r.Dst.Addr().Is4() {
		scope = max(scope, unix.RT_SCOPE_LINK)
	}
	dst := r.Dst.Masked()
	body := rtnl.RouteBody(rtnl.FamilyOf(dst.Addr()), dst.Bits(), unix.RTPROT_BOOT, scope)
	if !r.isMain() {
		body[4] = unix.RT_TABLE_UNSPEC
	}
	m := rtnl.NewMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|flag, body)
	if dst.Bits() > 0 {
		m.AttrAddr(unix.RTA_DST, dst.Addr())
	}
	if r.Gateway.IsValid() {
		m.AttrAddr(unix.RTA_GATEWAY, r.Gateway)
	}
	m.Attr32(unix.RTA_OIF, uint32(index))
	if !r.isMain() {
		m.Attr32(unix.RTA_TABLE, r.Table)
	}
	if metric != 0 {
		m.Attr32(unix.RTA_PRIORITY, metric)
	}
	if r.MTU != 0 || r.AdvMSS != 0 {
		m.Nest(unix.RTA_METRICS, func() {
			if r.MTU != 0 {
				m.Attr32(unix.RTAX_MTU, r.MTU)
			}
			if r.AdvMSS != 0 {
				m.Attr32(unix.RTAX_ADVMSS, r.AdvMSS)
			}
		})
	}
	return m
}
