// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// MarkConnections gives the tracked connections of the current namespace a bit of
// their mark, or takes it away: each shall have it where want says so. It returns
// how many got it and how many lost it. The other bits are left alone. A kernel
// without connection tracking has no connections.
//
// The library knows neither the mark's mask nor the identity of an ICMP query, so
// that its messages are made here.
func MarkConnections(bit uint32, want func(Connection) bool) (set, cleared int, err error) {
	for try := 1; ; try++ {
		s, c, err := markAll(bit, want)
		set, cleared = set+s, cleared+c
		switch {
		case err == nil:
			return set, cleared, nil
		case !errors.Is(err, netlink.ErrDumpInterrupted) || try == conntrackTries:
			return set, cleared, fmt.Errorf("mark tracked connections: %w", err)
		}
	}
}

// markAll goes once through the table, for both families: to walk it takes the
// kernel longer than what there is in it.
func markAll(bit uint32, want func(Connection) bool) (set, cleared int, err error) {
	all, err := conntrackRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, unix.AF_UNSPEC).Execute(unix.NETLINK_NETFILTER, 0)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return 0, 0, nil // EINVAL: there is no ctnetlink (nfnetlink_rcv_msg)
	case err != nil && !errors.Is(err, netlink.ErrDumpInterrupted):
		return 0, 0, err
	}
	interrupted := err // what was read is acted on all the same
	var errs []error
	for _, message := range all {
		c, identity, ok := parseConnection(message)
		if !ok {
			continue
		}
		has, shall := c.Mark&bit != 0, want(c)
		if has == shall {
			continue
		}
		value := uint32(0)
		if shall {
			value = bit
		}
		r := conntrackRequest(nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK, message[0])
		r.AddRawData(identity)
		r.AddData(nl.NewRtAttr(nl.CTA_MARK, nl.BEUint32Attr(value)))
		r.AddData(nl.NewRtAttr(ctaMarkMask, nl.BEUint32Attr(bit)))
		switch _, err := r.Execute(unix.NETLINK_NETFILTER, 0); {
		case errors.Is(err, unix.ENOENT): // it is over
		case err != nil:
			errs = append(errs, err)
		case shall:
			set++
		default:
			cleared++
		}
	}
	return set, cleared, errors.Join(append(errs, interrupted)...)
}

// ctaMarkMask is CTA_MARK_MASK of linux/netfilter/nfnetlink_conntrack.h.
const ctaMarkMask = 21

// nlaTypeMask is NLA_TYPE_MASK of linux/netlink.h: the type of an attribute without its flags.
const nlaTypeMask = 0x3fff

func conntrackRequest(kind, flags int, family uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return r
}

// parseConnection reads one message of a dump. identity are its attributes that
// say which connection it is.
func parseConnection(message []byte) (c Connection, identity []byte, ok bool) {
	if len(message) < nl.SizeofNfgenmsg {
		return c, nil, false
	}
	attrs, err := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
	if err != nil {
		return c, nil, false
	}
	for _, a := range attrs {
		switch a.Attr.Type & nlaTypeMask {
		case nl.CTA_TUPLE_ORIG:
			c.Protocol, c.Src, c.Dst, c.SrcPort, c.DstPort = parseTuple(a.Value)
			identity = nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, a.Value).Serialize()
		case nl.CTA_TUPLE_REPLY:
			_, c.ReplySrc, c.ReplyDst, c.ReplySrcPort, c.ReplyDstPort = parseTuple(a.Value)
		case nl.CTA_MARK:
			if len(a.Value) == 4 {
				c.Mark = binary.BigEndian.Uint32(a.Value)
			}
		}
	}
	for _, a := range attrs { // after the tuple, whatever their order was
		if kind := a.Attr.Type & nlaTypeMask; kind == nl.CTA_ZONE {
			identity = append(identity, nl.NewRtAttr(int(kind), a.Value).Serialize()...)
		}
	}
	return c, identity, c.Src.IsValid() && c.Dst.IsValid() && c.ReplySrc.IsValid()
}

// parseTuple reads one direction of a connection.
func parseTuple(b []byte) (protocol model.Protocol, src, dst netip.Addr, srcPort, dstPort uint16) {
	parts, _ := nl.ParseRouteAttr(b) // what doesn't parse has no address
	for _, part := range parts {
		fields, _ := nl.ParseRouteAttr(part.Value)
		for _, f := range fields {
			at := [2]uint16{part.Attr.Type & nlaTypeMask, f.Attr.Type & nlaTypeMask}
			switch at {
			case [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V4_SRC}, [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V6_SRC}:
				src = addrOf(f.Value)
			case [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V4_DST}, [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V6_DST}:
				dst = addrOf(f.Value)
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM}:
				if len(f.Value) == 1 {
					protocol = model.Protocol(f.Value[0])
				}
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_SRC_PORT}:
				srcPort = parsePort(f.Value)
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_DST_PORT}:
				dstPort = parsePort(f.Value)
			}
		}
	}
	return protocol, src, dst, srcPort, dstPort
}

func parsePort(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}
