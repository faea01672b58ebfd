// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// What gobgp does (4.8, pkg/server/fsm.go): established closes each new connection of a neighbour, where RFC 4724, section 4.2, has the
// former one closed; and connectLoop makes connections that the kernel never asks whether they are alive.
// To reproduce: cut the power of a host and start it again (TestReturnsUnheard).
// What it costs: the host, which knows nothing of its former session, has none with its neighbours until their hold time
// ends, 90 s by default.
// What is done here: TCP keep-alives, which the kernel of a host that doesn't know the connection answers with a reset.

// keepAlives are sent every 10 s where nothing else is. No answer for 20 minutes ends the connection: the hold time comes first.
var keepAlives = []struct{ level, option, value int }{
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 10},
	{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
	{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 127},
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
}

// keepAlive turns keep-alives on for all connections of this process to the neighbours, as the library doesn't hand its own out. For
// others, such as those to an etcd there, they do no harm.
func keepAlive(neighbours []netip.Addr) error {
	if len(neighbours) == 0 {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("find the connections of BGP: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		var to netip.Addr
		peer, _ := unix.Getpeername(fd) // what fails is no connection
		switch peer := peer.(type) {
		case *unix.SockaddrInet4:
			to = netip.AddrFrom4(peer.Addr)
		case *unix.SockaddrInet6:
			to = netip.AddrFrom16(peer.Addr).Unmap()
		}
		if slices.Contains(neighbours, to) {
			for _, o := range keepAlives {
				_ = unix.SetsockoptInt(fd, o.level, o.option, o.value) // fails where it was closed meanwhile
			}
		}
	}
	return nil
}
