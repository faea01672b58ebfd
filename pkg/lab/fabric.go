// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The fabric is one Ethernet: a bridge in its own namespace, which is also the default gateway of the hosts on it and
// the home of the etcd members.
const fabricBridge = "fabric0"

// subnetAddr returns address n of a rack's subnet. Rack 0 is the fabric.
func subnetAddr(v6 bool, rack, n int) netip.Prefix {
	if v6 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0xfa, 0, 0x0b, 7: byte(rack), 14: byte(n >> 8), 15: byte(n)}), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 20 + byte(rack), byte(n >> 8), byte(n)}), 16)
}

func gatewayAddr(v6 bool, rack int) netip.Prefix { return subnetAddr(v6, rack, 1) }
func memberAddr(v6 bool, i int) netip.Prefix     { return subnetAddr(v6, 0, 10+i) }     // from 1
func uplinkAddr(v6 bool, rack int) netip.Prefix  { return subnetAddr(v6, 0, 100+rack) } // from 1
func hostAddr(v6 bool, rack, index int) netip.Prefix {
	return subnetAddr(v6, rack, 256+index) // from 1
}

// A wire is the bridge that hosts are plugged into: the fabric's, or a rack's.
type wire struct {
	ns     Namespace
	bridge string
	rack   int
}

// fabric has all wires of a lab, and the routers between them.
type fabric struct {
	lab   string // its directory
	ns    Namespace
	state *state
}

func newFabric(l *Lab) *fabric {
	return &fabric{lab: l.dir, ns: namespaceIn(l.dir, "fabric"), state: &l.state}
}

func (f *fabric) wire(rack int) wire {
	if rack == 0 {
		return wire{f.ns, fabricBridge, 0}
	}
	return wire{namespaceIn(f.lab, rackName(rack)), rackBridge, rack}
}

// forward makes the thread's namespace a router. It sends no ICMP redirects: hosts would learn routes that are not
// their agents'.
func forward() error {
	return errors.Join(writeSysctl("net/ipv4/ip_forward", "1"), writeSysctl("net/ipv6/conf/all/forwarding", "1"),
		writeSysctl("net/ipv4/conf/all/send_redirects", "0"), writeSysctl("net/ipv4/conf/default/send_redirects", "0"))
}

// links runs fn with a netlink handle for the namespace.
func (n Namespace) links(fn func(*netlink.Handle) error) error {
	fd, err := netns.GetFromPath(n.path)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", n.path, err)
	}
	defer fd.Close()
	h, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return fn(h)
}

func (f *fabric) make() error {
	ns, err := createNamespace(f.ns.path)
	if err != nil {
		return err
	}
	if err := ns.Do(forward); err != nil {
		return err
	}
	var members []netip.Prefix
	for i := 1; i <= f.state.EtcdMembers; i++ {
		members = append(members, memberAddr(false, i), memberAddr(true, i))
	}
	return ns.links(func(h *netlink.Handle) error { return f.wire(0).addBridge(h, members...) })
}

// addBridge makes the bridge, with the addresses of a gateway and others.
func (w wire) addBridge(h *netlink.Handle, more ...netip.Prefix) error {
	// Without its own MAC address a bridge has the lowest one of its ports, and each new host could change what the
	// others have in their caches.
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{
		Name: w.bridge, HardwareAddr: net.HardwareAddr{0x02, 0xca, 0x11, 0xc0, byte(w.rack), 0x01},
	}}
	if err := h.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge: %w", err)
	}
	for _, a := range append([]netip.Prefix{gatewayAddr(false, w.rack), gatewayAddr(true, w.rack)}, more...) {
		if err := addAddr(h, bridge, a); err != nil {
			return err
		}
	}
	return h.LinkSetUp(bridge)
}

// addPort makes the veth from a port of the bridge to a link in another namespace, which gets these addresses.
func (w wire) addPort(veth *netlink.Veth, to Namespace, addrs ...netip.Prefix) error {
	fd, err := netns.GetFromPath(to.path)
	if err != nil {
		return err
	}
	defer fd.Close()
	err = w.ns.links(func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(w.bridge)
		if err != nil {
			return err
		}
		veth.MasterIndex, veth.PeerNamespace = bridge.Attrs().Index, netlink.NsFd(int(fd))
		if err := h.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth %s: %w", veth.Name, err)
		}
		return h.LinkSetUp(veth)
	})
	if err != nil {
		return err
	}
	return to.links(func(h *netlink.Handle) error {
		end, err := h.LinkByName(veth.PeerName)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if err := addAddr(h, end, a); err != nil {
				return err
			}
		}
		return h.LinkSetUp(end)
	})
}

// plug connects a host's eth0 to its wire, and adds addresses and default routes.
func (f *fabric) plug(host *Host) error {
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: host.port(), Alias: "host " + host.name}, PeerName: "eth0",
		// The same after a reboot, because others have it in their caches.
		PeerHardwareAddr: net.HardwareAddr{0x02, 0xca, 0x11, 0xc1, byte(host.index >> 8), byte(host.index)},
	}
	addrs := []netip.Prefix{hostAddr(false, host.rack, host.index), hostAddr(true, host.rack, host.index)}
	if err := f.wire(host.rack).addPort(veth, host.ns, addrs...); err != nil {
		return err
	}
	return host.ns.links(func(h *netlink.Handle) error {
		for _, v6 := range []bool{false, true} {
			if err := addRoute(h, netip.Prefix{}, gatewayAddr(v6, host.rack).Addr()); err != nil {
				return err
			}
		}
		return nil
	})
}

// unplug removes a host's port, and with it its eth0.
func (f *fabric) unplug(host *Host) error {
	return f.wire(host.rack).ns.links(func(h *netlink.Handle) error {
		port, err := h.LinkByName(host.port())
		if err != nil {
			return fmt.Errorf("find port %s: %w", host.port(), err)
		}
		return h.LinkDel(port)
	})
}

// addRoute adds a route through a neighbour; the zero destination is the default route.
func addRoute(h *netlink.Handle, to netip.Prefix, via netip.Addr) error {
	route := &netlink.Route{Gw: via.AsSlice()}
	if to.IsValid() {
		route.Dst = &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
	}
	if err := h.RouteAdd(route); err != nil {
		return fmt.Errorf("add route to %s via %s: %w", route.Dst, via, err)
	}
	return nil
}

func addAddr(h *netlink.Handle, link netlink.Link, a netip.Prefix) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen()),
	}}
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD // usable at once: no other host on this wire has it
	}
	if err := h.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s to %s: %w", a, link.Attrs().Name, err)
	}
	return nil
}

// writeSysctl sets a network sysctl of the thread's namespace.
func writeSysctl(name, value string) error {
	// No O_CREAT and O_TRUNC: procfs has neither.
	f, err := os.OpenFile(filepath.Join("/proc/sys", name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", name, value, err)
	}
	return nil
}
