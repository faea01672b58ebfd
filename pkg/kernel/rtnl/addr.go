// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

// ParseAddr reads struct ifaddrmsg and its attributes.
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
	return netip.PrefixFrom(local, int(b[1])), int(Uint32(b[4:])), local.IsValid()
}

// AddrFlags are IFA_F_…: struct ifaddrmsg has room for the first eight alone.
func AddrFlags(b []byte) (flags uint32) {
	if len(b) < unix.SizeofIfAddrmsg {
		return 0
	}
	flags = uint32(b[2])
	Attributes(b[unix.SizeofIfAddrmsg:], func(kind uint16, data []byte) {
		if kind == unix.IFA_FLAGS && len(data) >= 4 {
			flags = Uint32(data)
		}
	})
	return flags
}

// AddAddr adds an address without duplicate address detection, or finds it
// there.
func AddAddr(index int, p netip.Prefix) *Message {
	scope := uint8(unix.RT_SCOPE_UNIVERSE)
	if p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() {
		scope = unix.RT_SCOPE_LINK
	}
	m := NewMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, AddrBody(p, scope, index))
	m.AttrAddr(unix.IFA_LOCAL, p.Addr())
	m.AttrAddr(unix.IFA_ADDRESS, p.Addr())
	if p.Addr().Is6() {
		m.Attr32(unix.IFA_FLAGS, unix.IFA_F_NODAD)
	}
	return m
}

// DeleteAddr takes an address from a link.
func DeleteAddr(index int, p netip.Prefix) *Message {
	m := NewMessage(unix.RTM_DELADDR, 0, AddrBody(p, 0, index))
	m.AttrAddr(unix.IFA_LOCAL, p.Addr())
	return m
}

// ListAddrs6 asks for the IPv6 addresses of all links.
func ListAddrs6() *Message {
	m := NewMessage(unix.RTM_GETADDR, 0, make([]byte, unix.SizeofIfAddrmsg))
	(*m)[unix.SizeofNlMsghdr] = unix.AF_INET6
	return m
}

// HostPrefix is the prefix that holds the address alone.
func HostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// LinkLocal is the address of RFC 4291, appendix A.
func LinkLocal(m model.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80,
		8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// LinkLocalPrefix is such an address with its subnet.
func LinkLocalPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 64) }
