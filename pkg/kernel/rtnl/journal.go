// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// JournalBuffer holds what the kernel tells between two audits of a host where
	// little happens. Where more does the kernel says that it dropped some.
	JournalBuffer = 256 << 10
	// mostTrust is how many audits in a row believe the kernel that what it tells
	// changes of has not changed. It is insurance: nothing is known that the kernel
	// would not tell.
	mostTrust = 30
)

// Journal is what the kernel has told of changes to links, addresses, routes and
// neighbours since it was last read. It wakes nobody: notices wait in the socket.
// Not for concurrent use.
type Journal struct {
	fd    int
	Doubt bool // something that matters was told, or lost, and not all has been read since
	trust int  // audits since all was read
}

// OpenJournal opens one in the calling thread's namespace, without what the
// socket of that port changes of routes and neighbours.
func OpenJournal(port uint32) (*Journal, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a socket for the kernel's notices: %w", err)
	}
	j := &Journal{fd: fd, Doubt: true}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, JournalBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, JournalBuffer) // as much as is allowed
	}
	if err = journalFilter(fd, port); err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: Groups})
	}
	if err != nil {
		j.Close()
		return nil, fmt.Errorf("open a socket for the kernel's notices: %w", err)
	}
	return j, nil
}

// Close ends it.
func (j *Journal) Close() {
	if j.fd >= 0 {
		_ = unix.Close(j.fd)
		j.fd = -1
	}
}

// Hear reads what has been told since the last time. Where something of that
// matters, or the kernel says that it dropped something, there is doubt.
func (j *Journal) Hear(buf []byte, matters func(Header, []byte) bool) {
	for {
		n, _, err := unix.Recvfrom(j.fd, buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			// Until the buffer is empty it drops more and doesn't say so again
			// (netlink_overrun), so all of it is read.
			j.Doubt = true
		case err != nil:
			j.Doubt = true // the next time tells of the rest
			return
		case !j.Doubt:
			Messages(buf[:n], func(h Header, body []byte) { j.Doubt = j.Doubt || matters(h, body) })
		}
	}
}

// Trusted says whether what changes are told of can be taken to be as it was
// when all was last read.
func (j *Journal) Trusted() bool {
	j.trust++
	return !j.Doubt && j.trust <= mostTrust
}

// ReadAll notes that all was read after the journal was.
func (j *Journal) ReadAll() { j.Doubt, j.trust = false, 0 }

// journalFilter has the kernel keep to itself the routes and neighbours that the
// socket of that port changed, and what becomes of IPv6 neighbours by itself,
// permanent ones excepted. IPv4's can be changed by an ioctl, arp(8), which looks
// as if the kernel had done it.
func journalFilter(fd int, port uint32) error {
	const (
		kindAt, portAt    = 4, 12  // in struct nlmsghdr
		familyAt, stateAt = 16, 24 // struct ndmsg
		dynamic           = unix.NUD_INCOMPLETE | unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE
		load, is, answer  = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		any               = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	)
	program := []unix.SockFilter{
		{Code: load | unix.BPF_H, K: kindAt},
		{Code: is, K: Swapped16(unix.RTM_NEWNEIGH), Jt: 4},
		{Code: is, K: Swapped16(unix.RTM_DELNEIGH), Jt: 3},
		{Code: is, K: Swapped16(unix.RTM_NEWROUTE), Jt: 8},
		{Code: is, K: Swapped16(unix.RTM_DELROUTE), Jt: 7},
		{Code: answer, K: 0xffffffff},
		// 6: a neighbour
		{Code: load | unix.BPF_W, K: portAt},
		{Code: is, K: 0, Jf: 5},
		{Code: load | unix.BPF_B, K: familyAt},
		{Code: is, K: unix.AF_INET6, Jf: 5},
		{Code: load | unix.BPF_H, K: stateAt},
		{Code: any, K: Swapped16(dynamic), Jt: 2, Jf: 3},
		// 12: a route
		{Code: load | unix.BPF_W, K: portAt},
		{Code: is, K: Swapped32(port), Jf: 1},
		{Code: answer, K: 0},
		{Code: answer, K: 0xffffffff},
	}
	return os.NewSyscallError("attach a filter", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}))
}
