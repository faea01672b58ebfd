// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
)

// IsHosts reports whether the namespace takes packets to an address as its own: its links have it, or it is their network's broadcast or
// anycast address. It is false if the kernel doesn't answer.
func IsHosts(a netip.Addr) bool {
	c, err := rtnl.Dial()
	if err != nil {
		return false
	}
	defer c.Close()
	found, err := c.RouteGet(rtnl.IP(a))
	return err == nil && slices.ContainsFunc(found, func(r netlink.Route) bool {
		return r.Type == unix.RTN_LOCAL || r.Type == unix.RTN_BROADCAST || r.Type == unix.RTN_ANYCAST
	})
}

// LeadsTo reports whether the namespace has a host route to one of the addresses by the link, as to a workload. It is false if the kernel
// doesn't answer.
func (l Link) LeadsTo(addrs []netip.Addr) bool {
	c, err := rtnl.Dial()
	if err != nil {
		return false
	}
	defer c.Close()
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		r, ok := c.Lookup(a, l.Index)
		return ok && r.Index == l.Index && r.Dst == rtnl.HostPrefix(a)
	})
}

// Addrs returns the addresses within the prefix that links of the namespace have, except tunnels to other hosts. There are none if the
// kernel doesn't answer.
func Addrs(p netip.Prefix) (out []netip.Addr) {
	c, err := rtnl.Dial()
	if err != nil {
		return nil
	}
	defer c.Close()
	all, _ := rtnl.Dump(func() ([]netlink.Addr, error) { return c.AddrList(nil, rtnl.FamilyOf(p.Addr())) })
	for _, a := range all {
		addr := rtnl.Prefix(a.IPNet).Addr()
		if !p.Contains(addr) {
			continue
		}
		if l, err := Get(c, a.LinkIndex, ""); err == nil && !IsTunnelName(l.Name) {
			out = append(out, addr)
		}
	}
	return out
}

// LedTo returns the link of the namespace's host route to the address, as to a workload; ok is false if there is none.
func LedTo(a netip.Addr) (l Link, ok bool) {
	c, err := rtnl.Dial()
	if err != nil {
		return Link{}, false
	}
	defer c.Close()
	r, ok := c.Lookup(a, 0)
	if !ok || r.Dst != rtnl.HostPrefix(a) || r.Gateway.IsValid() || r.Local {
		return Link{}, false
	}
	l, err = Get(c, r.Index, "")
	return l, err == nil
}
