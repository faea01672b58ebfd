// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// route is a route of the main table, with all its next hops.
type route struct {
	dst      netip.Prefix
	kind     uint8 // RTN_UNICAST, …
	protocol uint8
	metric   uint32
	source   netip.Addr
	hops     []nextHop // sorted; none but for RTN_UNICAST
}

// nextHop is one of them, as the kernel has it.
type nextHop struct {
	gateway netip.Addr // invalid = the link itself; of IPv4 it may be of IPv6
	index   int
	onLink  bool
	weight  uint8 // less one
}

func (r route) equal(o route) bool {
	return r.dst == o.dst && r.kind == o.kind && r.protocol == o.protocol && r.metric == o.metric &&
		r.source == o.source && slices.Equal(r.hops, o.hops)
}

// within says whether the route leads nowhere but where the other leads too. A blackhole leads nowhere at all:
// without it packets would take the default route.
func (r route) within(o route) bool {
	return r.kind == unix.RTN_BLACKHOLE || r.kind == o.kind && !slices.ContainsFunc(r.hops, func(h nextHop) bool { return !slices.Contains(o.hops, h) })
}

func compareHops(a, b nextHop) int {
	return cmp.Or(a.gateway.Compare(b.gateway), cmp.Compare(a.index, b.index))
}

func isNotExist(err error) bool { return errors.Is(err, os.ErrNotExist) }

// Message is a request about the route; everything that tells it from others is
// in it, so that a deletion finds this one alone.
func (r route) message(kind, flags uint16) *rtnl.Message {
	body := rtnl.RouteBody(rtnl.FamilyOf(r.dst.Addr()), r.dst.Bits(), r.protocol, unix.RT_SCOPE_UNIVERSE)
	body[7] = r.kind
	one := len(r.hops) == 1 && r.hops[0].weight == 0
	if one && r.hops[0].onLink {
		binary.NativeEndian.PutUint32(body[8:], unix.RTNH_F_ONLINK)
	}
	switch {
	case kind == unix.RTM_DELROUTE:
		body[6] = unix.RT_SCOPE_NOWHERE // any
	case one && r.dst.Addr().Is4() && !r.hops[0].gateway.IsValid():
		body[6] = unix.RT_SCOPE_LINK
	}
	m := rtnl.NewMessage(kind, flags, body)
	if r.dst.Bits() > 0 {
		m.AttrAddr(unix.RTA_DST, r.dst.Addr())
	}
	if r.metric != 0 {
		m.Attr32(unix.RTA_PRIORITY, r.metric)
	}
	if r.source.IsValid() {
		m.AttrAddr(unix.RTA_PREFSRC, r.source)
	}
	switch {
	case one:
		if g := r.hops[0].gateway; g.IsValid() {
			m.Attr(rtnl.GatewayOf(r.dst.Addr(), g))
		}
		m.Attr32(unix.RTA_OIF, uint32(r.hops[0].index))
	case len(r.hops) > 0:
		m.Attr(unix.RTA_MULTIPATH, encodeHops(r.dst.Addr(), r.hops))
	}
	return m
}

// encodeHops is a list of struct rtnexthop, each with its gateway.
func encodeHops(dst netip.Addr, hops []nextHop) []byte {
	var b []byte
	for _, h := range hops {
		start := len(b)
		var flags uint8
		if h.onLink {
			flags = unix.RTNH_F_ONLINK
		}
		b = append(b, 0, 0, flags, h.weight)
		b = binary.NativeEndian.AppendUint32(b, uint32(h.index))
		if h.gateway.IsValid() {
			kind, g := rtnl.GatewayOf(dst, h.gateway)
			b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(g)))
			b = binary.NativeEndian.AppendUint16(b, kind)
			b = append(b, g...)
		}
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
	}
	return b
}

// parseFabricRoute reads struct rtmsg and its attributes; false for what is not a
// route of the main table.
func parseFabricRoute(b []byte) (route, bool) {
	if len(b) < unix.SizeofRtMsg {
		return route{}, false
	}
	dst, table := rtnl.Unspecified(b[0]), uint32(b[4])
	if !dst.IsValid() {
		return route{}, false
	}
	r := route{kind: b[7], protocol: b[5]}
	hop := nextHop{onLink: rtnl.Uint32(b[8:])&unix.RTNH_F_ONLINK != 0}
	rtnl.Attributes(b[unix.SizeofRtMsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.RTA_DST:
			dst = rtnl.Addr(data)
		case unix.RTA_GATEWAY:
			hop.gateway = rtnl.Addr(data)
		case unix.RTA_VIA:
			hop.gateway = rtnl.ParseVia(data)
		case unix.RTA_OIF:
			hop.index = int(rtnl.Uint32(data))
		case unix.RTA_PRIORITY:
			r.metric = rtnl.Uint32(data)
		case unix.RTA_TABLE:
			table = rtnl.Uint32(data)
		case unix.RTA_PREFSRC:
			r.source = rtnl.Addr(data)
		case unix.RTA_MULTIPATH:
			r.hops = decodeHops(data)
		}
	})
	r.dst = netip.PrefixFrom(dst, int(b[1]))
	if hop.index != 0 && r.hops == nil {
		r.hops = []nextHop{hop}
	}
	if r.kind != unix.RTN_UNICAST {
		r.hops = nil // of IPv6 the kernel names the loopback
	}
	slices.SortFunc(r.hops, compareHops)
	return r, table == unix.RT_TABLE_MAIN && r.dst.IsValid()
}

func decodeHops(data []byte) []nextHop {
	var hops []nextHop
	for len(data) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(data))
		if n < unix.SizeofRtNexthop || n > len(data) {
			return hops
		}
		h := nextHop{onLink: data[2]&unix.RTNH_F_ONLINK != 0, weight: data[3], index: int(rtnl.Uint32(data[4:]))}
		rtnl.Attributes(data[unix.SizeofRtNexthop:n], func(kind uint16, data []byte) {
			switch kind {
			case unix.RTA_GATEWAY:
				h.gateway = rtnl.Addr(data)
			case unix.RTA_VIA:
				h.gateway = rtnl.ParseVia(data)
			}
		})
		hops = append(hops, h)
		data = data[min(rtnl.Align4(n), len(data)):]
	}
	return hops
}

// readRoutes reads the main table's routes of a protocol, of 0 all of them.
func readRoutes(s *rtnl.Socket, family, protocol uint8) ([]route, error) {
	var routes []route
	request := routesRequest(family, protocol)
	err := s.Walk(request, func() { routes = nil }, func(m rtnl.Received) {
		if m.Kind != unix.RTM_NEWROUTE {
			return
		}
		if r, ok := parseFabricRoute(m.Body); ok && (protocol == 0 || r.protocol == protocol) {
			routes = append(routes, r)
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // nobody has made a route here yet: the table isn't there
	}
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return routes, nil
}

func routesRequest(family, protocol uint8) *rtnl.Message {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[4], body[5] = family, unix.RT_TABLE_MAIN, protocol
	return rtnl.NewMessage(unix.RTM_GETROUTE, 0, body)
}

// resolve is the route as the kernel shall have it now. The error says what of it
// can't be; with ok false nothing can.
func (p *pass) resolve(want plan.Route) (r route, ok bool, lacks, err error) {
	if !want.Destination.IsValid() || want.Destination != want.Destination.Masked() || want.Destination.Addr().Is4In6() {
		return r, false, fmt.Errorf("%s is not a prefix that can be routed", want.Destination), nil
	}
	r = route{dst: want.Destination, kind: unix.RTN_UNICAST, protocol: p.cfg.Protocol, metric: Metric}
	if want.Source.IsValid() {
		if want.Source.Is4() == r.dst.Addr().Is4() && p.local(want.Source) {
			r.source = want.Source
		} else {
			lacks = fmt.Errorf("source address %s is not this host's: the route is without", want.Source)
		}
	}
	if want.Kind == plan.Blackhole {
		r.kind, r.source = unix.RTN_BLACKHOLE, netip.Addr{}
		return r, true, nil, nil
	}
	for _, h := range want.Hops {
		l, there, err := p.link(h.Device)
		switch {
		case err != nil:
			return r, false, nil, err
		case !there:
			lacks = errors.Join(lacks, &link.DownError{Interface: h.Device, Why: "is not there"})
		case !l.Up:
			lacks = errors.Join(lacks, &link.DownError{Interface: h.Device, Why: "is down"})
		case h.Gateway.IsValid() && h.Gateway.Is4() && r.dst.Addr().Is6():
			lacks = errors.Join(lacks, fmt.Errorf("next hop %s is not of the family of %s", h.Gateway, r.dst))
		default:
			r.hops = append(r.hops, nextHop{gateway: h.Gateway.WithZone(""), index: l.Index, onLink: h.OnLink})
		}
	}
	slices.SortFunc(r.hops, compareHops)
	r.hops = slices.Compact(r.hops)
	if len(r.hops) == 0 && lacks == nil {
		lacks = errors.New("it has no next hop")
	}
	return r, len(r.hops) > 0, lacks, nil
}

// local says whether an address is the namespace's own.
func (p *pass) local(a netip.Addr) bool {
	is, known := p.sources[a]
	if !known {
		r, ok := p.sock.Lookup(a, 0)
		is = ok && r.Local
		p.sources[a] = is
	}
	return is
}
