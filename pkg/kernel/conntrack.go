// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// conntrackTries is how often a dump of the table that changes overtook is
// repeated; what was found is deleted each time.
const conntrackTries = 5

// Connection is a tracked connection as its first packet was, and as its answers are.
type Connection struct {
	Protocol           model.Protocol
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16     // 0 where the protocol has none
	ReplySrc, ReplyDst netip.Addr // they differ from Dst and Src where addresses are translated
	// These differ from DstPort and SrcPort likewise.
	ReplySrcPort, ReplyDstPort uint16
	Mark                       uint32
}

// Involves says whether the connection has the address at either end, in either direction.
func (c Connection) Involves(a netip.Addr) bool {
	return a == c.Src || a == c.Dst || a == c.ReplySrc || a == c.ReplyDst
}

// condemned is the library's interface.
type condemned func(Connection) bool

// MatchConntrackFlow says whether to delete.
func (c condemned) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	return c(Connection{
		Protocol: model.Protocol(flow.Forward.Protocol),
		Src:      addrOf(flow.Forward.SrcIP), Dst: addrOf(flow.Forward.DstIP),
		SrcPort: flow.Forward.SrcPort, DstPort: flow.Forward.DstPort,
		ReplySrc: addrOf(flow.Reverse.SrcIP), ReplyDst: addrOf(flow.Reverse.DstIP), ReplySrcPort: flow.Reverse.SrcPort, ReplyDstPort: flow.Reverse.DstPort,
		Mark: flow.Mark,
	})
}

// DeleteConntrack forgets the connections of the addresses in the current
// namespace, and returns how many there were: packets of an address's next
// holder must not pass as those of its last. A kernel without connection
// tracking has none.
func DeleteConntrack(addrs []netip.Addr) (int, error) {
	gone := make(map[netip.Addr]bool, len(addrs))
	var families []netlink.InetFamily
	for _, a := range addrs {
		a = a.Unmap()
		gone[a] = true
		if f := netlink.InetFamily(familyOf(a)); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	return deleteConnections(families, func(c Connection) bool {
		return gone[c.Src] || gone[c.Dst] || gone[c.ReplySrc] || gone[c.ReplyDst]
	})
}

// DeleteConnections forgets the connections of the current namespace that are
// condemned, and returns how many there were. The next packet of such a
// connection is judged like the first of one.
func DeleteConnections(isCondemned func(Connection) bool) (int, error) {
	return deleteConnections([]netlink.InetFamily{unix.AF_INET, unix.AF_INET6}, isCondemned)
}

func deleteConnections(families []netlink.InetFamily, match condemned) (int, error) {
	handle, err := netlink.NewHandleAt(vishnetns.None(), unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open a netfilter netlink socket: %w", err)
	}
	defer handle.Close()
	total := 0
	var errs []error
	for _, family := range families {
		n, err := deleteFlows(handle, family, match)
		total += n
		errs = append(errs, err)
	}
	return total, errors.Join(errs...)
}

func deleteFlows(handle *netlink.Handle, family netlink.InetFamily, match condemned) (int, error) {
	total := 0
	for try := 1; ; try++ {
		n, err := handle.ConntrackDeleteFilters(netlink.ConntrackTable, family, match)
		total += int(n)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
			// EINVAL: there is no ctnetlink (nfnetlink_rcv_msg)
			return total, nil
		case !errors.Is(err, netlink.ErrDumpInterrupted) || try == conntrackTries:
			return total, fmt.Errorf("delete tracked connections: %w", err)
		}
	}
}
