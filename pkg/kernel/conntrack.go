// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// conntrackTries is how often a dump of the table that changes overtook is
// repeated; what was found is deleted each time.
const conntrackTries = 5

// involved matches the connections that have one of the addresses as source or
// destination, in either direction: with NAT the directions differ.
type involved map[netip.Addr]bool

// MatchConntrackFlow is the library's interface.
func (v involved) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	return v.has(flow.Forward.SrcIP) || v.has(flow.Forward.DstIP) || v.has(flow.Reverse.SrcIP) || v.has(flow.Reverse.DstIP)
}

func (v involved) has(ip net.IP) bool {
	a, ok := netip.AddrFromSlice(ip)
	return ok && v[a.Unmap()]
}

// DeleteConntrack forgets the connections of the addresses in the current
// namespace, and returns how many there were: packets of an address's next
// holder must not pass as those of its last. A kernel without connection
// tracking has none.
func DeleteConntrack(addrs []netip.Addr) (int, error) {
	handle, err := netlink.NewHandleAt(vishnetns.None(), unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open a netfilter netlink socket: %w", err)
	}
	defer handle.Close()
	byFamily := map[netlink.InetFamily]involved{}
	for _, a := range addrs {
		family := netlink.InetFamily(familyOf(a.Unmap()))
		if byFamily[family] == nil {
			byFamily[family] = involved{}
		}
		byFamily[family][a.Unmap()] = true
	}
	total := 0
	var errs []error
	for family, v := range byFamily {
		n, err := deleteFlows(handle, family, v)
		total += n
		errs = append(errs, err)
	}
	return total, errors.Join(errs...)
}

func deleteFlows(handle *netlink.Handle, family netlink.InetFamily, v involved) (int, error) {
	total := 0
	for try := 1; ; try++ {
		n, err := handle.ConntrackDeleteFilters(netlink.ConntrackTable, family, v)
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
