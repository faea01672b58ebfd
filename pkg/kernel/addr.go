// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

// parseAddr reads struct ifaddrmsg and its attributes.
func parseAddr(b []byte) (p netip.Prefix, index int, ok bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return netip.Prefix{}, 0, false
	}
	var local, address netip.Addr
	attributes(b[unix.SizeofIfAddrmsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.IFA_LOCAL:
			local = addrOf(data)
		case unix.IFA_ADDRESS:
			address = addrOf(data)
		}
	})
	if !local.IsValid() {
		local = address
	}
	return netip.PrefixFrom(local, int(b[1])), int(u32(b[4:])), local.IsValid()
}

// addrFlags are IFA_F_…: struct ifaddrmsg has room for the first eight alone.
func addrFlags(b []byte) (flags uint32) {
	if len(b) < unix.SizeofIfAddrmsg {
		return 0
	}
	flags = uint32(b[2])
	attributes(b[unix.SizeofIfAddrmsg:], func(kind uint16, data []byte) {
		if kind == unix.IFA_FLAGS && len(data) >= 4 {
			flags = u32(data)
		}
	})
	return flags
}

// addAddr adds an address without duplicate address detection, or finds it
// there.
func addAddr(index int, p netip.Prefix) *message {
	scope := uint8(unix.RT_SCOPE_UNIVERSE)
	if p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() {
		scope = unix.RT_SCOPE_LINK
	}
	m := newMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, addrBody(p, scope, index))
	m.attrAddr(unix.IFA_LOCAL, p.Addr())
	m.attrAddr(unix.IFA_ADDRESS, p.Addr())
	if p.Addr().Is6() {
		m.attr32(unix.IFA_FLAGS, unix.IFA_F_NODAD)
	}
	return m
}

func deleteAddr(index int, p netip.Prefix) *message {
	m := newMessage(unix.RTM_DELADDR, 0, addrBody(p, 0, index))
	m.attrAddr(unix.IFA_LOCAL, p.Addr())
	return m
}

func listAddrs6() *message {
	m := newMessage(unix.RTM_GETADDR, 0, make([]byte, unix.SizeofIfAddrmsg))
	(*m)[unix.SizeofNlMsghdr] = unix.AF_INET6
	return m
}

// hostPrefix is the prefix that holds the address alone.
func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// linkLocal is the address of RFC 4291, appendix A.
func linkLocal(m model.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80,
		8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

func linkLocalPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 64) }
