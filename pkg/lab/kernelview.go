// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kernel is the kernel's state in a namespace, as text similar to that of the ip command. The lab reads it itself,
// without the code under test.
type Kernel struct {
	Links, Addrs, Routes, Neighbours []string
}

// Lines returns all lines.
func (k Kernel) Lines() []string { return slices.Concat(k.Links, k.Addrs, k.Routes, k.Neighbours) }

// Kernel reads the kernel's state: links, addresses, the routes of the main table, and neighbours that were added (not
// learned ones). It leaves out what the kernel makes by itself (loopback, multicast, fe80::/64).
func (n Namespace) Kernel() (k Kernel, err error) {
	for range maxLooks {
		if k, err = n.look(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return k, err
}

// maxLooks is how often the state is read again because it changed during the read.
const maxLooks = 100

func (n Namespace) look() (Kernel, error) {
	var k Kernel
	err := n.links(func(h *netlink.Handle) error {
		links, err := h.LinkList()
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		names := map[int]string{}
		for _, link := range links {
			a := link.Attrs()
			names[a.Index] = a.Name
			if a.Flags&net.FlagLoopback != 0 {
				continue
			}
			k.Links = append(k.Links, linkText(link))
			addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
			if err != nil {
				return fmt.Errorf("list addresses of %s: %w", a.Name, err)
			}
			for _, addr := range addrs {
				k.Addrs = append(k.Addrs, fmt.Sprintf("addr %s dev %s", addr.IPNet, a.Name))
			}
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
			if err != nil {
				return fmt.Errorf("list routes: %w", err)
			}
			for _, r := range routes {
				if text := routeText(r, names); text != "" {
					k.Routes = append(k.Routes, text)
				}
			}
			neighs, err := h.NeighList(0, family)
			if err != nil {
				return fmt.Errorf("list neighbours: %w", err)
			}
			proxies, err := h.NeighProxyList(0, family)
			if err != nil {
				return fmt.Errorf("list proxied neighbours: %w", err)
			}
			for _, e := range append(neighs, proxies...) {
				if text := neighbourText(e, names); text != "" {
					k.Neighbours = append(k.Neighbours, text)
				}
			}
		}
		return nil
	})
	for _, list := range [][]string{k.Links, k.Addrs, k.Routes, k.Neighbours} {
		slices.Sort(list)
	}
	return k, err
}

func linkText(link netlink.Link) string {
	a := link.Attrs()
	text := fmt.Sprintf("link %s %s mtu %d %s", a.Name, link.Type(), a.MTU, a.HardwareAddr)
	if a.Flags&net.FlagUp == 0 {
		text += " down"
	}
	if a.Alias != "" {
		text += fmt.Sprintf(" alias %q", a.Alias)
	}
	return text
}

func routeText(r netlink.Route, names map[int]string) string {
	dst := "default"
	if r.Dst != nil {
		if ones, _ := r.Dst.Mask.Size(); ones > 0 {
			dst = r.Dst.String()
		}
		if r.Dst.IP.IsMulticast() || dst == "fe80::/64" {
			return ""
		}
	}
	text := "route " + dst
	if r.Type == unix.RTN_BLACKHOLE {
		text = "route blackhole " + dst // IPv6's is on lo, IPv4's has no link
	} else {
		for _, hop := range hops(r) {
			if hop.Gw != nil {
				text += " via " + hop.Gw.String()
			}
			text += " dev " + names[hop.LinkIndex]
		}
	}
	if r.Scope == netlink.SCOPE_LINK {
		text += " scope link"
	}
	// Leave out the protocol of the kernel's own routes, and of those added without one.
	if r.Protocol != unix.RTPROT_KERNEL && r.Protocol != unix.RTPROT_BOOT {
		text += fmt.Sprintf(" proto %d", int(r.Protocol))
	}
	return text
}

// hops returns a route's next hops; several mean ECMP.
func hops(r netlink.Route) []*netlink.NexthopInfo {
	if len(r.MultiPath) > 0 {
		return r.MultiPath
	}
	return []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
}

func neighbourText(e netlink.Neigh, names map[int]string) string {
	switch {
	case e.Flags&netlink.NTF_PROXY != 0:
		return fmt.Sprintf("neigh proxy %s dev %s", e.IP, names[e.LinkIndex])
	case e.State&netlink.NUD_PERMANENT != 0:
		return fmt.Sprintf("neigh %s dev %s %s permanent", e.IP, names[e.LinkIndex], e.HardwareAddr)
	}
	return ""
}

// CheckEmpty returns an error that lists what the kernel still has of pods on this host: links and routes that a host
// without pods does not have.
func (h *Host) CheckEmpty() error {
	k, err := h.ns.Kernel()
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(k.Lines(), func(line string) bool {
		return !strings.Contains(line, " cali") && !strings.Contains(line, " proto 80")
	})
	if len(left) > 0 {
		return fmt.Errorf("the kernel of host %s is not empty:\n  %s", h.name, strings.Join(left, "\n  "))
	}
	return nil
}
