// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The fabric is one Ethernet: a bridge in a namespace of its own, which is
// also the hosts' default gateway and where the etcd members live.
const fabricBridge = "fabric0"

func fabricAddr(v6 bool, n int) netip.Prefix {
	if v6 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0xfa, 0, 0x0b, 14: byte(n >> 8), 15: byte(n)}), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 20, byte(n >> 8), byte(n)}), 16)
}

func gatewayAddr(v6 bool) netip.Prefix         { return fabricAddr(v6, 1) }
func memberAddr(v6 bool, i int) netip.Prefix   { return fabricAddr(v6, 10+i) }      // from 1
func hostAddr(v6 bool, index int) netip.Prefix { return fabricAddr(v6, 256+index) } // from 1

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

func (l *Lab) makeFabric() error {
	ns, err := createNamespace(filepath.Join(l.dir, "ns", "fabric"))
	if err != nil {
		return err
	}
	l.fabric = ns
	err = ns.Do(func() error {
		return errors.Join(writeSysctl("net/ipv4/ip_forward", "1"), writeSysctl("net/ipv6/conf/all/forwarding", "1"))
	})
	if err != nil {
		return err
	}
	return ns.links(func(h *netlink.Handle) error {
		// Without an address of its own a bridge has the lowest of its ports',
		// and each new host could change what the others have in their caches.
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{
			Name: fabricBridge, HardwareAddr: net.HardwareAddr{0x02, 0xca, 0x11, 0xc0, 0, 0x01},
		}}
		if err := h.LinkAdd(bridge); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		for _, v6 := range []bool{false, true} {
			addrs := []netip.Prefix{gatewayAddr(v6)}
			for i := 1; i <= l.cfg.EtcdMembers; i++ {
				addrs = append(addrs, memberAddr(v6, i))
			}
			for _, a := range addrs {
				if err := addAddr(h, bridge, a); err != nil {
					return err
				}
			}
		}
		return h.LinkSetUp(bridge)
	})
}

// plug gives a host its eth0 on the fabric, addresses and default routes.
func (l *Lab) plug(host *Host) error {
	port := fmt.Sprintf("host%d", host.index)
	fd, err := netns.GetFromPath(host.ns.path)
	if err != nil {
		return err
	}
	defer fd.Close()
	err = l.fabric.links(func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(fabricBridge)
		if err != nil {
			return err
		}
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: bridge.Attrs().Index, Alias: "host " + host.name},
			PeerName:  "eth0", PeerNamespace: netlink.NsFd(int(fd)),
		}
		if err := h.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth %s: %w", port, err)
		}
		return h.LinkSetUp(veth)
	})
	if err != nil {
		return err
	}
	return host.ns.links(func(h *netlink.Handle) error {
		eth0, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, v6 := range []bool{false, true} {
			if err := addAddr(h, eth0, hostAddr(v6, host.index)); err != nil {
				return err
			}
		}
		if err := h.LinkSetUp(eth0); err != nil {
			return err
		}
		for _, v6 := range []bool{false, true} {
			route := &netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gatewayAddr(v6).Addr().AsSlice()}
			if err := h.RouteAdd(route); err != nil {
				return fmt.Errorf("add default route via %s: %w", gatewayAddr(v6).Addr(), err)
			}
		}
		return nil
	})
}

func addAddr(h *netlink.Handle, link netlink.Link, a netip.Prefix) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen()),
	}}
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD // usable at once; nobody else is on this wire
	}
	if err := h.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s to %s: %w", a, link.Attrs().Name, err)
	}
	return nil
}
