// SPDX-License-Identifier: Apache-2.0

package crossconnect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
)

// Overhead of VXLAN over IPv4 and IPv6 (RFC 7348, 5): a device's MTU is smaller than the underlay's by this.
const (
	overhead4 = 50
	overhead6 = 70
)

// An End describes an interface in a pod.
type End struct {
	Name, Alias string
	Address     netip.Prefix // may be none
	Gateway     netip.Addr   // of Routes; none: they have only the interface
	Routes      []netip.Prefix
}

// A Tunnel describes a VXLAN device: this node's address, the other node's, and the UDP port of both.
type Tunnel struct {
	VNI           uint32
	Local, Remote netip.Addr
	Port          uint16
}

// Veth creates a veth with an end in each namespace, up, with their addresses and routes. It leaves nothing after an error.
func Veth(a *Namespace, endA End, b *Namespace, endB End) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = endA.Name
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = endB.Name, netlink.NsFd(b.net.Fd())
	if err := a.conn.LinkAdd(veth); err != nil {
		return fmt.Errorf("make veth %s in %s with its peer %s in %s: %w", endA.Name, a.path, endB.Name, b.path, err)
	}
	err := a.setUp(endA)
	if err == nil {
		err = b.setUp(endB)
	}
	if err == nil {
		err = errors.Join(a.route(endA), b.route(endB))
	}
	if err != nil {
		return errors.Join(err, a.Delete(endA.Name, endA.Alias))
	}
	return nil
}

// VXLAN creates a VXLAN device in a namespace whose packets pass through the calling thread's. It leaves nothing after an error.
func VXLAN(n *Namespace, end End, t Tunnel) error {
	host, err := rtnl.Dial()
	if err != nil {
		return err
	}
	defer host.Close()
	mtu, err := tunnelMTU(host, t.Remote)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Namespace = end.Name, mtu, netlink.NsFd(n.net.Fd())
	device := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: int(t.VNI), SrcAddr: t.Local.AsSlice(), Group: t.Remote.AsSlice(), Port: int(t.Port),
		Learning: false, UDP6ZeroCSumRx: false,
	}
	if err := host.LinkAdd(device); err != nil {
		return fmt.Errorf("make VXLAN device %s (VNI %d, port %d) in %s: %w", end.Name, t.VNI, t.Port, n.path, err)
	}
	err = n.setUp(end)
	if err == nil {
		err = n.route(end)
	}
	if err != nil {
		return errors.Join(err, n.Delete(end.Name, end.Alias))
	}
	return nil
}

// tunnelMTU returns the MTU that fits into packets to the other node.
func tunnelMTU(host *rtnl.Conn, remote netip.Addr) (int, error) {
	routes, err := host.RouteGet(rtnl.IP(remote))
	if err == nil && len(routes) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return 0, fmt.Errorf("no route to the other node's address %s: %w", remote, err)
	}
	out, err := host.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return 0, fmt.Errorf("the interface on the way to %s: %w", remote, err)
	}
	mtu := out.Attrs().MTU
	if routes[0].MTU != 0 {
		mtu = min(mtu, routes[0].MTU)
	}
	if remote.Is4() {
		return min(mtu, 65535) - overhead4, nil
	}
	return min(mtu, 65535) - overhead6, nil
}

// setUp marks the link, adds its address, and brings it up. It disables router advertisements for it.
func (n *Namespace) setUp(end End) error {
	l, err := n.conn.LinkByName(end.Name)
	if err != nil {
		return fmt.Errorf("read %s, just made in %s: %w", end.Name, n.path, err)
	}
	if err := n.conn.LinkSetAlias(l, end.Alias); err != nil {
		return fmt.Errorf("set the alias of %s: %w", end.Name, err)
	}
	err = n.net.Do(func(ns.NetNS) error {
		err := rtnl.WriteSysctl("ipv6/conf/"+end.Name+"/accept_ra", "0")
		if errors.Is(err, unix.ENOENT) { // no IPv6
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", end.Name, err)
	}
	if end.Address.IsValid() {
		if err := n.conn.AddrReplace(l, rtnl.NewAddr(end.Address)); err != nil {
			return fmt.Errorf("add %s to %s: %w", end.Address, end.Name, err)
		}
	}
	if err := n.conn.LinkSetUp(l); err != nil {
		return fmt.Errorf("bring up %s: %w", end.Name, err)
	}
	return nil
}

// route adds the routes. It fails if the pod has one already: it is another interface's. But a default route is added as two halves if the
// pod has one: being narrower they win; they go with the link, and then the pod's is the default again.
func (n *Namespace) route(end End) error {
	l, err := n.conn.LinkByName(end.Name)
	if err != nil {
		return fmt.Errorf("read %s: %w", end.Name, err)
	}
	there, err := n.routes()
	if err != nil {
		return err
	}
	var dsts []netip.Prefix
	for _, dst := range end.Routes {
		if isDefault(dst) && slices.Contains(there, dst) {
			dsts = append(dsts, halves(dst)...)
		} else {
			dsts = append(dsts, dst)
		}
	}
	for _, dst := range dsts {
		r := rtnl.Route{Dst: dst, Index: l.Attrs().Index, Protocol: unix.RTPROT_STATIC}.Netlink()
		if end.Gateway.IsValid() && end.Gateway.Is4() == dst.Addr().Is4() {
			r.Gw = rtnl.IP(end.Gateway)
		} else {
			r.Scope = netlink.SCOPE_LINK
		}
		if err := n.conn.RouteAdd(r); err != nil {
			return fmt.Errorf("add a route to %s by %s: %w", dst, end.Name, err)
		}
	}
	return nil
}

func isDefault(p netip.Prefix) bool { return p.Bits() == 0 }

func halves(all netip.Prefix) []netip.Prefix {
	upper := all.Addr().AsSlice()
	upper[0] = 0x80
	a, _ := netip.AddrFromSlice(upper)
	return []netip.Prefix{netip.PrefixFrom(all.Addr(), 1), netip.PrefixFrom(a, 1)}
}

// HasDefaultRoute reports whether the pod has a default route.
func (n *Namespace) HasDefaultRoute() (bool, error) {
	routes, err := n.routes()
	return slices.ContainsFunc(routes, isDefault), err
}

// Received returns how many packets a link has received.
func (n *Namespace) Received(name string) (uint64, error) {
	l, err := n.conn.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("read %s in %s: %w", name, n.path, err)
	}
	if s := l.Attrs().Statistics; s != nil {
		return s.RxPackets, nil
	}
	return 0, nil
}

// Has reports whether the namespace has the link that was created with this alias.
func (n *Namespace) Has(name, alias string) (bool, error) {
	l, err := n.conn.LinkByName(name)
	if rtnl.IsGone(err) || errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s in %s: %w", name, n.path, err)
	}
	return l.Attrs().Alias == alias, nil
}

// Delete deletes the link that was created with this alias, and one left by a process that died before it set the alias. A missing link is
// no error.
func (n *Namespace) Delete(name, alias string) error {
	l, err := n.conn.LinkByName(name)
	if rtnl.IsGone(err) || errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s in %s: %w", name, n.path, err)
	}
	unmarked := l.Attrs().Alias == "" && l.Attrs().Flags&unix.IFF_UP == 0 && slices.Contains([]string{"veth", "vxlan"}, l.Type())
	if l.Attrs().Alias != alias && !unmarked {
		return nil // another's
	}
	if err := n.conn.LinkDel(l); err != nil && !rtnl.IsGone(err) {
		return fmt.Errorf("delete %s in %s: %w", name, n.path, err)
	}
	return nil
}

// Names returns the names of the interfaces.
func (n *Namespace) Names() (map[string]bool, error) {
	links, err := n.links()
	names := map[string]bool{}
	for _, l := range links {
		names[l.Attrs().Name] = true
	}
	return names, err
}

// Routes returns the destinations of the pod's routes, without default routes, and without link-local, multicast and loopback destinations.
func (n *Namespace) Routes() ([]netip.Prefix, error) {
	all, err := n.routes()
	return slices.DeleteFunc(all, func(p netip.Prefix) bool {
		return p.Bits() <= 1 || p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast() || p.Addr().IsLoopback()
	}), err
}

func (n *Namespace) routes() ([]netip.Prefix, error) {
	var found []netip.Prefix
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := rtnl.Dump(func() ([]netlink.Route, error) { return n.conn.RouteList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("list the routes of %s: %w", n.path, err)
		}
		for _, r := range routes {
			if r.Dst != nil {
				found = append(found, rtnl.Prefix(r.Dst))
			}
		}
	}
	return found, nil
}
