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
// What is done here: the kernel asks all the time. A host that doesn't know the connection ends it by its answer.

// keepAlives have the kernel ask where nothing was heard for 10 s, as often. That no answer comes ends nothing for 20 minutes: the hold
// time is for that.
var keepAlives = []struct{ level, option, value int }{
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 10},
	{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
	{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 127},
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
}

// keepAlive has the kernel ask by the connections of this process to the neighbours. The library keeps them to itself. That others,
// such as to an etcd there, may be among them does no harm.
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
