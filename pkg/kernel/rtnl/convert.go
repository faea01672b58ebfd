// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"cmp"
	"net"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addr converts an address; the zero Addr for a wrong length.
func Addr(ip []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a
}

// IP converts an address; nil for the zero Addr.
func IP(a netip.Addr) net.IP { return a.AsSlice() }

// IPNet converts a prefix.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: IP(p.Addr()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Prefix converts a network; the zero Prefix for nil.
func Prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, size := n.Mask.Size()
	a := Addr(n.IP)
	if size == 32 {
		a = a.Unmap() // the library's form of IPv4's default route
	}
	return netip.PrefixFrom(a, bits)
}

// HardwareAddr converts a MAC address.
func HardwareAddr(m model.MAC) net.HardwareAddr { return m[:] }

// MAC converts a MAC address; zero for a wrong length.
func MAC(a net.HardwareAddr) (m model.MAC) {
	if len(a) == len(m) {
		copy(m[:], a)
	}
	return m
}

// FamilyOf returns AF_INET or AF_INET6.
func FamilyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// HostPrefix returns the prefix of only this address.
func HostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// LinkLocal returns the link-local address that follows from a MAC address (RFC 4291, appendix A).
func LinkLocal(m model.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80,
		8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// Device names a link by its index, for the library's functions that take a netlink.Link.
func Device(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// NewAddr returns an address for the library to add: for IPv6 without duplicate address detection, which takes a second.
func NewAddr(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: IPNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
		if p.Addr().IsLinkLocalUnicast() {
			a.Scope = unix.RT_SCOPE_LINK
		}
	}
	return a
}

// Neigh returns a permanent neighbour for the library to set.
func Neigh(index int, a netip.Addr, mac model.MAC) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: index, State: unix.NUD_PERMANENT, IP: IP(a), HardwareAddr: HardwareAddr(mac)}
}

// ComparePrefixes orders by address, then by length.
func ComparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
