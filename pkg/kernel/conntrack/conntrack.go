// SPDX-License-Identifier: Apache-2.0

// Package conntrack lists and deletes the connections that the kernel tracks.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// listTries is how many times a dump of the table is tried when changes interrupt it.
const listTries = 5

// Connection is a tracked connection: its first packet, and its answers.
type Connection struct {
	Protocol           model.Protocol
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16     // 0 if the protocol has none
	ReplySrc, ReplyDst netip.Addr // they differ from Dst and Src if addresses are translated
	// These differ from DstPort and SrcPort likewise.
	ReplySrcPort, ReplyDstPort uint16
	ICMPType, ICMPCode         uint8 // of the first packet
}

// Tracked is a connection that can be passed back to the tracker.
type Tracked struct {
	Connection
	Timeout time.Duration // until the tracker forgets it, unless a packet comes
	// PickedUp: it is a TCP connection that existed before the tracker saw it. Src is the side that was heard first then, which may be the
	// server.
	PickedUp bool
	Replied  bool // the other side has sent something
	family   uint8
	identity []byte // its identifying attributes
}

// List returns the tracked connections of the current namespace that keep accepts, of both families. It is one walk through the tracker's
// table, shared by all namespaces: that takes the kernel ten milliseconds even if the table is almost empty. A kernel without connection
// tracking has no connections.
func List(keep func(Connection) bool) (kept []Tracked, err error) {
	for range listTries {
		kept = nil
		request := newRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, unix.AF_UNSPEC)
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
	return nil, fmt.Errorf("list tracked connections: it changed under way %d times: %w", listTries, err)
}

// Delete makes the tracker forget connections, and returns how many still existed. The next packet of such a connection is judged like a
// first one. The library does not know the identity of an ICMP query, so the messages are built here.
func Delete(list []Tracked) (n int, err error) {
	var errs []error
	for _, t := range list {
		r := newRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, t.family)
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

func newRequest(kind, flags int, family uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return r
}

// parseTracked parses one message of a dump.
func parseTracked(message []byte) (t Tracked, ok bool) {
	if len(message) < nl.SizeofNfgenmsg {
		return t, false
	}
	t.family = message[0]
	rtnl.Attributes(message[nl.SizeofNfgenmsg:], func(kind uint16, data []byte) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			o := parseTuple(data)
			t.Protocol, t.Src, t.Dst, t.SrcPort, t.DstPort, t.ICMPType, t.ICMPCode = o.protocol, o.src, o.dst, o.srcPort, o.dstPort, o.kind, o.code
			t.identity = append(t.identity, nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, data).Serialize()...)
		case nl.CTA_TUPLE_REPLY:
			r := parseTuple(data)
			t.ReplySrc, t.ReplyDst, t.ReplySrcPort, t.ReplyDstPort = r.src, r.dst, r.srcPort, r.dstPort
		case nl.CTA_TIMEOUT:
			if len(data) == 4 {
				t.Timeout = time.Duration(binary.BigEndian.Uint32(data)) * time.Second
			}
		case nl.CTA_STATUS:
			t.Replied = len(data) == 4 && binary.BigEndian.Uint32(data)&seenReply != 0
		case nl.CTA_PROTOINFO:
			t.PickedUp = parsePickedUp(data)
		case nl.CTA_ZONE:
			t.identity = append(t.identity, nl.NewRtAttr(int(kind), data).Serialize()...)
		}
	})
	return t, t.Src.IsValid() && t.Dst.IsValid() && t.ReplySrc.IsValid()
}

// seenReply is IPS_SEEN_REPLY of linux/netfilter/nf_conntrack_common.h.
const seenReply = 1 << 1

// liberal is IP_CT_TCP_FLAG_BE_LIBERAL of linux/netfilter/nf_conntrack_tcp.h: the tracker sets it for a connection whose beginning it has
// not seen, as it doesn't know its windows (tcp_new in nf_conntrack_proto_tcp.c).
const liberal = 0x08

// parsePickedUp parses what the tracker knows of a protocol.
func parsePickedUp(b []byte) (is bool) {
	rtnl.Attributes(b, func(kind uint16, data []byte) {
		if kind != nl.CTA_PROTOINFO_TCP {
			return
		}
		rtnl.Attributes(data, func(kind uint16, flags []byte) {
			if kind == nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL && len(flags) > 0 && flags[0]&liberal != 0 {
				is = true
			}
		})
	})
	return is
}

// Attributes of an ICMP tuple, from linux/netfilter/nfnetlink_conntrack.h.
const (
	protoICMPType   = 5
	protoICMPCode   = 6
	protoICMPv6Type = 8
	protoICMPv6Code = 9
)

// tuple is one direction of a connection.
type tuple struct {
	protocol         model.Protocol
	src, dst         netip.Addr
	srcPort, dstPort uint16
	kind, code       uint8 // of ICMP
}

func parseTuple(b []byte) (t tuple) {
	rtnl.Attributes(b, func(part uint16, fields []byte) {
		rtnl.Attributes(fields, func(kind uint16, data []byte) {
			switch part {
			case nl.CTA_TUPLE_IP:
				switch kind {
				case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
					t.src = rtnl.Addr(data)
				case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
					t.dst = rtnl.Addr(data)
				}
			case nl.CTA_TUPLE_PROTO:
				t.parseProto(kind, data)
			}
		})
	})
	return t
}

func (t *tuple) parseProto(kind uint16, b []byte) {
	switch kind {
	case nl.CTA_PROTO_NUM:
		t.protocol = model.Protocol(parseByte(b))
	case nl.CTA_PROTO_SRC_PORT:
		t.srcPort = parsePort(b)
	case nl.CTA_PROTO_DST_PORT:
		t.dstPort = parsePort(b)
	case protoICMPType, protoICMPv6Type:
		t.kind = parseByte(b)
	case protoICMPCode, protoICMPv6Code:
		t.code = parseByte(b)
	}
}

func parseByte(b []byte) uint8 {
	if len(b) != 1 {
		return 0
	}
	return b[0]
}

func parsePort(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}
