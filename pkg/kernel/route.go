// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// route is a unicast route of the main table.
type route struct {
	dst      netip.Prefix
	gateway  netip.Addr // of either family
	index    int        // outgoing link
	protocol uint8
	scope    uint8
	metric   uint32
	onLink   bool // the gateway is a neighbour, whatever the addresses say
	local    bool // to the namespace itself, by the local table
	several  int  // where a list of routes has each next hop by itself, those of one have a number; 0 = it has one
}

// routeFilter says which routes to read; zero fields don't restrict.
type routeFilter struct {
	family   uint8
	protocol uint8
	index    int
}

// request is for a dump of the main table. The kernel filters, where it can;
// older ones send all.
func (f routeFilter) request() *message {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[4], body[5], body[7] = f.family, unix.RT_TABLE_MAIN, f.protocol, unix.RTN_UNICAST
	m := newMessage(unix.RTM_GETROUTE, 0, body)
	if f.index != 0 {
		m.attr32(unix.RTA_OIF, uint32(f.index))
	}
	return m
}

// routes reads the main table; a route with several next hops comes as one for
// each.
func (s *socket) routes(f routeFilter) ([]route, error) {
	all, err := s.dump(f.request())
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // nobody has made a route here yet: the table isn't there
	}
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var routes []route
	for _, m := range all {
		r, ok := parseRoute(m.body)
		if !ok || m.kind != unix.RTM_NEWROUTE || f.protocol != 0 && r.protocol != f.protocol {
			continue
		}
		if r.index == 0 {
			routes = append(routes, parseHops(r, m.body)...)
		} else if f.index == 0 || r.index == f.index {
			routes = append(routes, r)
		}
	}
	return routes, nil
}

// parseHops makes a route of each next hop of a route that has several.
func parseHops(r route, b []byte) []route {
	var hops []route
	attributes(b[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
		if kind != unix.RTA_MULTIPATH {
			return
		}
		for len(data) >= unix.SizeofRtNexthop {
			n := int(binary.NativeEndian.Uint16(data))
			if n < unix.SizeofRtNexthop || n > len(data) {
				return
			}
			hop := r
			hop.index, hop.onLink = int(u32(data[4:])), data[2]&unix.RTNH_F_ONLINK != 0
			attributes(data[unix.SizeofRtNexthop:n], func(kind uint16, data []byte) {
				switch kind {
				case unix.RTA_GATEWAY:
					hop.gateway = addrOf(data)
				case unix.RTA_VIA:
					hop.gateway = parseVia(data)
				}
			})
			hops = append(hops, hop)
			data = data[min(align4(n), len(data)):]
		}
	})
	return hops
}

// parseRoute reads struct rtmsg and its attributes; false for what is not a
// unicast route of the main table. One with several next hops has no index.
func parseRoute(b []byte) (route, bool) {
	if len(b) < unix.SizeofRtMsg || b[7] != unix.RTN_UNICAST {
		return route{}, false
	}
	dst, bits, table := unspecified(b[0]), int(b[1]), uint32(b[4])
	if !dst.IsValid() {
		return route{}, false
	}
	r := route{protocol: b[5], scope: b[6], onLink: u32(b[8:])&unix.RTNH_F_ONLINK != 0}
	attributes(b[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.RTA_DST:
			dst = addrOf(data)
		case unix.RTA_GATEWAY:
			r.gateway = addrOf(data)
		case unix.RTA_VIA:
			r.gateway = parseVia(data)
		case unix.RTA_OIF:
			r.index = int(u32(data))
		case unix.RTA_PRIORITY:
			r.metric = u32(data)
		case unix.RTA_TABLE:
			table = u32(data)
		}
	})
	r.dst = netip.PrefixFrom(dst, bits)
	return r, table == unix.RT_TABLE_MAIN && r.dst.IsValid()
}

// parseVia reads struct rtvia of linux/rtnetlink.h: a gateway that is of another family than
// the route, as IPv4 may go by a neighbour that has IPv6 alone (RFC 8950).
func parseVia(b []byte) netip.Addr {
	if len(b) < 2 {
		return netip.Addr{}
	}
	return addrOf(b[2:])
}

func encodeVia(a netip.Addr) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, uint16(familyOf(a))), a.AsSlice()...)
}

// gatewayOf is the attribute that names a gateway of a route to dst.
func gatewayOf(dst, gateway netip.Addr) (kind uint16, data []byte) {
	if dst.Is4() != gateway.Is4() {
		return unix.RTA_VIA, encodeVia(gateway)
	}
	return unix.RTA_GATEWAY, gateway.AsSlice()
}

// onlyAddr is the address that a route of any kind and table leads to; the zero
// Addr where it leads to more than one.
func onlyAddr(b []byte) (a netip.Addr) {
	if len(b) < unix.SizeofRtMsg || !unspecified(b[0]).IsValid() || int(b[1]) != unspecified(b[0]).BitLen() {
		return a
	}
	attributes(b[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
		if kind == unix.RTA_DST {
			a = addrOf(data)
		}
	})
	return a
}

// unspecified is the family's, which a default route leads to; invalid for
// families other than the two.
func unspecified(family uint8) netip.Addr {
	switch family {
	case unix.AF_INET:
		return netip.IPv4Unspecified()
	case unix.AF_INET6:
		return netip.IPv6Unspecified()
	}
	return netip.Addr{}
}

// lookup returns the route that the kernel would take to the address, by the
// link where that isn't 0. Of one that is not in the main table, or not unicast
// or local, there is none.
func (s *socket) lookup(a netip.Addr, index int) (r route, ok bool) {
	answers, err := s.do(findRoute(a, index))
	if err != nil {
		return route{}, false
	}
	return foundRoute(answers[0], a)
}

// findRoute asks for the route that the kernel would take.
func findRoute(a netip.Addr, index int) *message {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1] = familyOf(a), uint8(a.BitLen())
	binary.NativeEndian.PutUint32(body[8:], unix.RTM_F_FIB_MATCH)
	request := newMessage(unix.RTM_GETROUTE, 0, body)
	request.attrAddr(unix.RTA_DST, a)
	if index != 0 {
		request.attr32(unix.RTA_OIF, uint32(index))
	}
	return request
}

func foundRoute(answer answer, a netip.Addr) (route, bool) {
	for _, m := range answer.data {
		if answer.err != nil || m.kind != unix.RTM_NEWROUTE || len(m.body) < unix.SizeofRtMsg {
			continue
		}
		if m.body[7] == unix.RTN_LOCAL {
			return route{dst: hostPrefix(a), local: true, protocol: m.body[5]}, true
		}
		if r, ok := parseRoute(m.body); ok {
			return r, true
		}
	}
	return route{}, false
}

// defaultMetric6 is what the kernel makes of no metric, for IPv6
// (IP6_RT_PRIO_USER).
const defaultMetric6 = 1024

// addRoute adds a route of ours. With NLM_F_EXCL it fails where there is one to
// the destination with that metric, whoever's it is; without, it comes first
// (IPv4) or after those there (IPv6) and replaces none.
func addRoute(r route, flags uint16) *message {
	return r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|flags)
}

func deleteRoute(r route) *message { return r.message(unix.RTM_DELROUTE, 0) }

func (r route) message(kind, flags uint16) *message {
	m := newMessage(kind, flags, routeBody(familyOf(r.dst.Addr()), r.dst.Bits(), r.protocol, r.scope))
	if r.local {
		body := (*m)[unix.SizeofNlMsghdr:]
		body[4], body[7] = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
	}
	if r.dst.Bits() > 0 {
		m.attrAddr(unix.RTA_DST, r.dst.Addr())
	}
	if r.gateway.IsValid() {
		m.attrAddr(unix.RTA_GATEWAY, r.gateway)
	}
	if r.index != 0 {
		m.attr32(unix.RTA_OIF, uint32(r.index))
	}
	if r.metric != 0 {
		m.attr32(unix.RTA_PRIORITY, r.metric)
	}
	return m
}

// comparePrefixes orders by address, then by length.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
