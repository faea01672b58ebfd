// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Multicast groups of linux/rtnetlink.h (RTNLGRP_…), as bits: group n is
// bit n-1.
const (
	groupLink   = 1 << 0
	groupNeigh  = 1 << 2
	groupAddr4  = 1 << 4
	groupRoute4 = 1 << 6
	groupAddr6  = 1 << 8
	groupRoute6 = 1 << 10
	groupConf4  = 1 << 23
	groupConf6  = 1 << 24

	// Groups are all that tell of links, addresses, routes and neighbours.
	Groups = groupLink | groupNeigh | groupAddr4 | groupRoute4 | groupAddr6 | groupRoute6

	// ConfGroups tell of those sysctls that RTM_NEWNETCONF has.
	ConfGroups = groupConf4 | groupConf6

	// NoticeBuffer holds what the kernel tells while nobody reads, in bytes.
	NoticeBuffer = 4 << 20
)

// Discard reads what a socket of notices has queued, for nothing. Until its queue is empty the kernel drops more of what
// it tells, and doesn't say so again (netlink_overrun): after a loss, what is looked at before may change unheard.
func Discard(socket *os.File, buf []byte) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for failed == nil || errors.Is(failed, unix.ENOBUFS) || errors.Is(failed, unix.EINTR) {
			_, _, failed = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		}
	})
	if err == nil && !errors.Is(failed, unix.EAGAIN) {
		err = failed
	}
	return err
}

// Swapped16 is the value as a filter sees it, which loads in network order what
// is in the host's.
func Swapped16(v uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v)))
}

// Swapped32 is that of 32 bits.
func Swapped32(v uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, v))
}
