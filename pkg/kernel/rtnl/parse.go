// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ParseRoute parses an event about a route; false unless it has a destination of one of the two families. The library parses only those of
// its own subscriptions, see Watch.
func ParseRoute(b []byte) (Route, bool) {
	if len(b) < unix.SizeofRtMsg {
		return Route{}, false
	}
	dst := netip.IPv4Unspecified()
	if b[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	} else if b[0] != unix.AF_INET {
		return Route{}, false
	}
	r := Route{Table: int(b[4]), Protocol: b[5], Scope: b[6], Local: b[7] == unix.RTN_LOCAL, OnLink: Uint32(b[8:])&unix.RTNH_F_ONLINK != 0}
	Attributes(b[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.RTA_DST:
			dst = Addr(data)
		case unix.RTA_GATEWAY:
			r.Gateway = Addr(data)
		case unix.RTA_OIF:
			r.Index = int(Uint32(data))
		case unix.RTA_PRIORITY:
			r.Metric = Uint32(data)
		case unix.RTA_TABLE:
			r.Table = int(Uint32(data))
		}
	})
	if r.Table == unix.RT_TABLE_MAIN {
		r.Table = 0
	}
	r.Dst = netip.PrefixFrom(dst, int(b[1]))
	return r, r.Dst.IsValid() && dst.Is4() == (b[0] == unix.AF_INET)
}

// ParseAddr parses an event about an address; false if it has none.
func ParseAddr(b []byte) (p netip.Prefix, index int, ok bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return netip.Prefix{}, 0, false
	}
	var local, address netip.Addr
	Attributes(b[unix.SizeofIfAddrmsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.IFA_LOCAL:
			local = Addr(data)
		case unix.IFA_ADDRESS:
			address = Addr(data)
		}
	})
	if !local.IsValid() {
		local = address
	}
	p = netip.PrefixFrom(local, int(b[1]))
	return p, int(Uint32(b[4:])), p.IsValid() && local.Is4() == (b[0] == unix.AF_INET)
}

// GetNeigh reads one neighbour, which the library can only list with all others; nil if there is none.
func (c *Conn) GetNeigh(index int, a netip.Addr) (*netlink.Neigh, error) {
	found, err := c.Request(unix.RTM_GETNEIGH, 0, unix.RTM_NEWNEIGH, &netlink.Ndmsg{Family: uint8(FamilyOf(a)), Index: uint32(index)},
		nl.NewRtAttr(unix.NDA_DST, a.AsSlice()))
	if IsGone(err) || err == nil && len(found) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return netlink.NeighDeserialize(found[0])
}

// HasAddr reports whether a link has an IPv6 address, which the library can only list with all others: to list one link's the kernel walks
// all links.
func (c *Conn) HasAddr(index int, a netip.Addr) bool {
	msg := nl.NewIfAddrmsg(FamilyOf(a))
	msg.Index = uint32(index)
	found, err := c.Request(unix.RTM_GETADDR, 0, unix.RTM_NEWADDR, msg, nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
	if err != nil || len(found) == 0 {
		return false
	}
	// For a link that has just gone the kernel answers with another's.
	p, of, ok := ParseAddr(found[0])
	return ok && of == index && p.Addr() == a
}
