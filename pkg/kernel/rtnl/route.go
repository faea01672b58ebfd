// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Route is a unicast route, of the main table unless it was asked for another.
type Route struct {
	Dst      netip.Prefix
	Gateway  netip.Addr // of either family
	Index    int        // outgoing link
	Protocol uint8
	Scope    uint8
	Metric   uint32
	OnLink   bool // the gateway is a neighbour, whatever the addresses say
	Local    bool // to the namespace itself, by the local table
	Several  int  // where a list of routes has each next hop by itself, those of one have a number; 0 = it has one
}

// RouteFilter says which routes to read; zero fields don't restrict.
type RouteFilter struct {
	Family   uint8
	Protocol uint8
	Index    int
	Table    uint32 // 0 = main
}

// Request is for a dump of the table. The kernel filters, where it can;
// older ones send all.
func (f RouteFilter) Request() *Message {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[4], body[5], body[7] = f.Family, unix.RT_TABLE_MAIN, f.Protocol, unix.RTN_UNICAST
	m := NewMessage(unix.RTM_GETROUTE, 0, body)
	if f.Table != 0 {
		(*m)[unix.SizeofNlMsghdr+4] = unix.RT_TABLE_UNSPEC
		m.Attr32(unix.RTA_TABLE, f.Table)
	}
	if f.Index != 0 {
		m.Attr32(unix.RTA_OIF, uint32(f.Index))
	}
	return m
}

// Routes reads the table; a route with several next hops comes as one for
// each.
func (s *Socket) Routes(f RouteFilter) ([]Route, error) {
	all, err := s.Dump(f.Request())
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // nobody has made a route here yet: the table isn't there
	}
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var routes []Route
	for _, m := range all {
		r, table, ok := parseRoute(m.Body)
		if !ok || table != cmp.Or(f.Table, unix.RT_TABLE_MAIN) || m.Kind != unix.RTM_NEWROUTE || f.Protocol != 0 && r.Protocol != f.Protocol {
			continue
		}
		if r.Index == 0 {
			routes = append(routes, ParseHops(r, m.Body)...)
		} else if f.Index == 0 || r.Index == f.Index {
			routes = append(routes, r)
		}
	}
	return routes, nil
}

// ParseHops makes a route of each next hop of a route that has several.
func ParseHops(r Route, b []byte) []Route {
	var hops []Route
	Attributes(b[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
		if kind != unix.RTA_MULTIPATH {
			return
		}
		for len(data) >= unix.SizeofRtNexthop {
			n := int(binary.NativeEndian.Uint16(data))
			if n < unix.SizeofRtNexthop || n > len(data) {
				return
			}
			hop := r
			hop.Index, hop.OnLink = int(Uint32(data[4:])), data[2]&unix.RTNH_F_ONLINK != 0
			Attributes(data[unix.SizeofRtNexthop:n], func(kind uint16, data []byte) {
				switch kind {
				case unix.RTA_GATEWAY:
					hop.Gateway = Addr(data)
				case unix.RTA_VIA:
					hop.Gateway = ParseVia(data)
				}
			})
			hops = append(hops, hop)
			data = data[min(Align4(n), len(data)):]
		}
	})
	return hops
}

// ParseRoute reads struct rtmsg and its attributes; false for what is not a
// unicast route of the main table. One with several next hops has no index.
func ParseRoute(b []byte) (Route, bool) {
	r, table, ok := parseRoute(b)
	return r, ok && table == unix.RT_TABLE_MAIN
}

// parseRoute is the same of any table.
func parseRoute(b []byte) (r Route, table uint32, ok bool) {
	if len(b) < unix.SizeofRtMsg || b[7] != unix.RTN_UNICAST {
		return Route{}, 0, false
	}
	dst, bits := Unspecified(b[0]), int(b[1])
	if !dst.IsValid() {
		return Route{}, 0, false
	}
	table = uint32(b[4])
	r = Route{Protocol: b[5], Scope: b[6], OnLink: Uint32(b[8:])&unix.RTNH_F_ONLINK != 0}
	Attributes(b[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.RTA_DST:
			dst = Addr(data)
		case unix.RTA_GATEWAY:
			r.Gateway = Addr(data)
		case unix.RTA_VIA:
			r.Gateway = ParseVia(data)
		case unix.RTA_OIF:
			r.Index = int(Uint32(data))
		case unix.RTA_PRIORITY:
			r.Metric = Uint32(data)
		case unix.RTA_TABLE:
			table = Uint32(data)
		}
	})
	r.Dst = netip.PrefixFrom(dst, bits)
	return r, table, r.Dst.IsValid()
}

// ParseVia reads struct rtvia of linux/rtnetlink.h: a gateway that is of another family than
// the route, as IPv4 may go by a neighbour that has IPv6 alone (RFC 8950).
func ParseVia(b []byte) netip.Addr {
	if len(b) < 2 {
		return netip.Addr{}
	}
	return Addr(b[2:])
}

func encodeVia(a netip.Addr) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, uint16(FamilyOf(a))), a.AsSlice()...)
}

// GatewayOf is the attribute that names a gateway of a route to dst.
func GatewayOf(dst, gateway netip.Addr) (kind uint16, data []byte) {
	if dst.Is4() != gateway.Is4() {
		return unix.RTA_VIA, encodeVia(gateway)
	}
	return unix.RTA_GATEWAY, gateway.AsSlice()
}

// OnlyAddr is the address that a route of any kind and table leads to; the zero
// Addr where it leads to more than one.
func OnlyAddr(b []byte) (a netip.Addr) {
	if len(b) < unix.SizeofRtMsg || !Unspecified(b[0]).IsValid() || int(b[1]) != Unspecified(b[0]).BitLen() {
		return a
	}
	Attributes(b[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
		if kind == unix.RTA_DST {
			a = Addr(data)
		}
	})
	return a
}

// Unspecified is the family's, which a default route leads to; invalid for
// families other than the two.
func Unspecified(family uint8) netip.Addr {
	switch family {
	case unix.AF_INET:
		return netip.IPv4Unspecified()
	case unix.AF_INET6:
		return netip.IPv6Unspecified()
	}
	return netip.Addr{}
}

// Lookup returns the route that the kernel would take to the address, by the
// link where that isn't 0. Of one that is not in the main table, or not unicast
// or local, there is none.
func (s *Socket) Lookup(a netip.Addr, index int) (r Route, ok bool) {
	answers, err := s.Do(FindRoute(a, index))
	if err != nil {
		return Route{}, false
	}
	return FoundRoute(answers[0], a)
}

// FindRoute asks for the route that the kernel would take.
func FindRoute(a netip.Addr, index int) *Message {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1] = FamilyOf(a), uint8(a.BitLen())
	binary.NativeEndian.PutUint32(body[8:], unix.RTM_F_FIB_MATCH)
	request := NewMessage(unix.RTM_GETROUTE, 0, body)
	request.AttrAddr(unix.RTA_DST, a)
	if index != 0 {
		request.Attr32(unix.RTA_OIF, uint32(index))
	}
	return request
}

// FoundRoute is the answer to FindRoute; false where there is no route that Lookup would return.
func FoundRoute(answer Answer, a netip.Addr) (Route, bool) {
	for _, m := range answer.Data {
		if answer.Err != nil || m.Kind != unix.RTM_NEWROUTE || len(m.Body) < unix.SizeofRtMsg {
			continue
		}
		if m.Body[7] == unix.RTN_LOCAL {
			return Route{Dst: HostPrefix(a), Local: true, Protocol: m.Body[5]}, true
		}
		if r, ok := ParseRoute(m.Body); ok {
			return r, true
		}
	}
	return Route{}, false
}

// DefaultMetric6 is what the kernel makes of no metric, for IPv6
// (IP6_RT_PRIO_USER).
const DefaultMetric6 = 1024

// AddRoute adds a route of ours. With NLM_F_EXCL it fails where there is one to
// the destination with that metric, whoever's it is; without, it comes first
// (IPv4) or after those there (IPv6) and replaces none.
func AddRoute(r Route, flags uint16) *Message {
	return r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|flags)
}

// DeleteRoute deletes that very route.
func DeleteRoute(r Route) *Message { return r.message(unix.RTM_DELROUTE, 0) }

func (r Route) message(kind, flags uint16) *Message {
	m := NewMessage(kind, flags, RouteBody(FamilyOf(r.Dst.Addr()), r.Dst.Bits(), r.Protocol, r.Scope))
	if r.Local {
		body := (*m)[unix.SizeofNlMsghdr:]
		body[4], body[7] = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
	}
	if r.Dst.Bits() > 0 {
		m.AttrAddr(unix.RTA_DST, r.Dst.Addr())
	}
	if r.Gateway.IsValid() {
		m.AttrAddr(unix.RTA_GATEWAY, r.Gateway)
	}
	if r.Index != 0 {
		m.Attr32(unix.RTA_OIF, uint32(r.Index))
	}
	if r.Metric != 0 {
		m.Attr32(unix.RTA_PRIORITY, r.Metric)
	}
	return m
}

// ComparePrefixes orders by address, then by length.
func ComparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
