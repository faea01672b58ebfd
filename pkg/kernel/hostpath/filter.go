// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// ignore has the kernel keep to itself, of what the socket subscribes to, the
// routes and neighbours that the socket of that port changed, and the neighbours
// that the kernel changes by itself: it leaves permanent ones alone, but reports
// every step in the life of the others, of which a host full of workloads that
// do nothing has dozens a second (IPv6's router solicitations alone).
func ignore(fd int, port uint32) error {
	const (
		kindAt, portAt = 4, 12 // in struct nlmsghdr
		all            = 0xffffffff
	)
	load := func(size uint16, at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | size | unix.BPF_ABS, K: at}
	}
	// Jumps count the instructions to leave out.
	equal := func(value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	take := func(bytes uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: bytes}
	}
	program := []unix.SockFilter{
		load(unix.BPF_H, kindAt),
		equal(rtnl.Swapped16(unix.RTM_NEWNEIGH), 4, 0),
		equal(rtnl.Swapped16(unix.RTM_DELNEIGH), 3, 0),
		equal(rtnl.Swapped16(unix.RTM_NEWROUTE), 4, 0),
		equal(rtnl.Swapped16(unix.RTM_DELROUTE), 3, 0),
		take(all),
		// A neighbour.
		load(unix.BPF_W, portAt),
		equal(0, 2, 1),
		// A route.
		load(unix.BPF_W, portAt),
		equal(rtnl.Swapped32(port), 0, 1),
		take(0),
		take(all),
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}
