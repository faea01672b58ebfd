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

// What gobgp does (4.8, pkg/server/fsm.go): established closes each new connection of a neighbour, though RFC 4724, section 4.2, says to
// close the former one; and connectLoop makes connections without TCP keep-alives.
// To reproduce: cut the power of a host and start it again (TestReturnsUnheard).
// What it costs: the host, which knows nothing of its former sessions, has none with its neighbours until their hold time ends, 90 s by
// default.
// What is done here: TCP keep-alives, which the kernel of a host that doesn't know the connection answers with a reset.

// keepAlives make the kernel probe a connection idle for 10 s, every 10 s. It ends after 20 minutes without answer: the hold
// time comes first.
var keepAlives = []struct{ level, option, value int }{
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 10},
	{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
	{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 127},
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
}

// keepAlive turns on keep-alives for all connections of this process to the neighbours, since the library doesn't expose its own.
// They do no harm to others, such as connections to an etcd there.
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
		peer, _ := unix.Getpeername(fd) // a file that is no connection fails
		switch peer := peer.(type) {
		case *unix.SockaddrInet4:
			to = netip.AddrFrom4(peer.Addr)
		case *unix.SockaddrInet6:
			to = netip.AddrFrom16(peer.Addr).Unmap()
		}
		if slices.Contains(neighbours, to) {
			for _, o := range keepAlives {
				_ = unix.SetsockoptInt(fd, o.level, o.option, o.value) // fails if it was closed meanwhile
			}
		}
	}
	return nil
}
