// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// conntrackTries is how often a dump of the table that changes overtook is
// repeated.
const conntrackTries = 5

// Connection is a tracked connection as its first packet was, and as its answers are.
type Connection struct {
	Protocol           model.Protocol
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16     // 0 where the protocol has none
	ReplySrc, ReplyDst netip.Addr // they differ from Dst and Src where addresses are translated
	// These differ from DstPort and SrcPort likewise.
	ReplySrcPort, ReplyDstPort uint16
}

// Tracked is a connection by which the tracker can be told what to do with it.
type Tracked struct {
	Connection
	Timeout time.Duration // until the tracker forgets it, unless a packet comes
	// PickedUp: it is of TCP and ran already when the tracker saw it first. Src is
	// who was heard first then, and may be the one who answers.
	PickedUp bool
	family   uint8
	identity []byte // its attributes that say which connection it is
}

// Connections returns the tracked connections of the current namespace that keep
// accepts, of both families. It is one walk through the tracker's table, which is
// every namespace's: that takes the kernel ten milliseconds, however little is in
// it. A kernel without connection tracking has none.
func Connections(keep func(Connection) bool) (kept []Tracked, err error) {
	for range conntrackTries {
		kept = nil
		request := conntrackRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, unix.AF_UNSPEC)
		err = request.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
			if t, ok := parseTracked(message); ok && keep(t.Connection) {
				kept = append(kept, t)
			}
			return true
		})
		switch {
		case err == nil:
			return kept, nil
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
			return nil, nil // EINVAL: there is no ctnetlink (nfnetlink_rcv_msg)
		case !errors.Is(err, netlink.ErrDumpInterrupted):
			return nil, fmt.Errorf("list tracked connections: %w", err)
		}
	}
	return nil, fmt.Errorf("list tracked connections: it changed under way %d times: %w", conntrackTries, err)
}

// DeleteConnections has the tracker forget connections, and returns how many
// there still were. The next packet of such a connection is judged like the first
// of one. The library does not know the identity of an ICMP query, so that the
// messages are made here.
func DeleteConnections(list []Tracked) (n int, err error) {
	var errs []error
	for _, t := range list {
		r := conntrackRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, t.family)
		r.AddRawData(t.identity)
		switch _, err := r.Execute(unix.NETLINK_NETFILTER, 0); {
		case errors.Is(err, unix.ENOENT): // it is over
		case err != nil:
			errs = append(errs, err)
		default:
			n++
		}
	}
	if len(errs) > 0 {
		return n, fmt.Errorf("delete tracked connections: %w", errors.Join(errs...))
	}
	return n, nil
}

// nlaTypeMask is NLA_TYPE_MASK of linux/netlink.h: the type of an attribute without its flags.
const nlaTypeMask = 0x3fff

func conntrackRequest(kind, flags int, family uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return r
}

// parseTracked reads one message of a dump.
func parseTracked(message []byte) (t Tracked, ok bool) {
	if len(message) < nl.SizeofNfgenmsg {
		return t, false
	}
	attrs, err := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
	if err != nil {
		return t, false
	}
	t.family = message[0]
	for _, a := range attrs {
		switch kind := a.Attr.Type & nlaTypeMask; kind {
		case nl.CTA_TUPLE_ORIG:
			t.Protocol, t.Src, t.Dst, t.SrcPort, t.DstPort = parseTuple(a.Value)
			t.identity = append(t.identity, nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, a.Value).Serialize()...)
		case nl.CTA_TUPLE_REPLY:
			_, t.ReplySrc, t.ReplyDst, t.ReplySrcPort, t.ReplyDstPort = parseTuple(a.Value)
		case nl.CTA_TIMEOUT:
			if len(a.Value) == 4 {
				t.Timeout = time.Duration(binary.BigEndian.Uint32(a.Value)) * time.Second
			}
		case nl.CTA_PROTOINFO:
			t.PickedUp = parsePickedUp(a.Value)
		case nl.CTA_ZONE:
			t.identity = append(t.identity, nl.NewRtAttr(int(kind), a.Value).Serialize()...)
		}
	}
	return t, t.Src.IsValid() && t.Dst.IsValid() && t.ReplySrc.IsValid()
}

// liberal is IP_CT_TCP_FLAG_BE_LIBERAL of linux/netfilter/nf_conntrack_tcp.h: the
// tracker sets it where it has not seen a connection begin, so that it doesn't
// know its windows (tcp_new in nf_conntrack_proto_tcp.c).
const liberal = 0x08

// parsePickedUp reads what the tracker knows of a protocol.
func parsePickedUp(b []byte) bool {
	protocols, _ := nl.ParseRouteAttr(b) // what doesn't parse has no flags
	for _, p := range protocols {
		if p.Attr.Type&nlaTypeMask != nl.CTA_PROTOINFO_TCP {
			continue
		}
		fields, _ := nl.ParseRouteAttr(p.Value)
		for _, f := range fields {
			if f.Attr.Type&nlaTypeMask == nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL && len(f.Value) > 0 && f.Value[0]&liberal != 0 {
				return true
			}
		}
	}
	return false
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
