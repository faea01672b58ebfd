// SPDX-License-Identifier: Apache-2.0

package rtnl

import "encoding/binary"

// Multicast groups of linux/rtnetlink.h (RTNLGRP_…), as bits: group n is
// bit n-1.
const (
	groupLink   = 1 << 0
	groupNeigh  = 1 << 2
	groupAddr4  = 1 << 4
	groupRoute4 = 1 << 6
	groupAddr6  = 1 << 8
	groupRoute6 = 1 << 10

	// Groups are all that tell of links, addresses, routes and neighbours.
	Groups = groupLink | groupNeigh | groupAddr4 | groupRoute4 | groupAddr6 | groupRoute6

	// NoticeBuffer holds what the kernel tells while nobody reads, in bytes.
	NoticeBuffer = 4 << 20
)

// Swapped16 is the value as a filter sees it, which loads in network order what
// is in the host's.
func Swapped16(v uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v)))
}

// Swapped32 is that of 32 bits.
func Swapped32(v uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, v))
}
