// SPDX-License-Identifier: Apache-2.0

// Package inflight waits in tests for packets on their way between network namespaces: what hasn't arrived by then
// never will.
package inflight

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// hops exceeds the number of hops of a packet and its answer through racks and tunnels, including the neighbour
// resolution of each hop.
const hops = 64

// Wait returns once every packet sent earlier has arrived or been dropped. It doesn't rely on time: between namespaces
// a packet waits in a queue of the CPU that sent it, and is processed further on that CPU (enqueue_to_backlog in the
// kernel's net/core/dev.c). Wait sends packets to itself on each CPU in turn: each one leaves the queue after
// everything that was in it. It doesn't wait for timers, such as TCP retransmissions. The loopback of the caller's
// namespace must be up.
func Wait() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is left in it
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(eventually.Limit.Seconds())}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	self, err := unix.Getsockname(fd)
	if err == nil {
		err = unix.Connect(fd, self)
	}
	if err != nil {
		return os.NewSyscallError("connect", err)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		var all unix.CPUSet
		err := os.NewSyscallError("sched_getaffinity", unix.SchedGetaffinity(0, &all))
		if err == nil {
			err = onEach(all, fd)
		}
		if unix.SchedSetaffinity(0, &all) == nil {
			runtime.UnlockOSThread() // otherwise the thread ends
		}
		done <- err
	}()
	return <-done
}

// onEach sends packets on each CPU and waits for them.
func onEach(all unix.CPUSet, fd int) error {
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return os.NewSyscallError("sched_setaffinity", err)
		}
		for range hops {
			if _, err := unix.Write(fd, []byte{0}); err != nil {
				return os.NewSyscallError("write", err)
			}
			if _, err := unix.Read(fd, make([]byte, 1)); err != nil {
				return os.NewSyscallError("read", err)
			}
		}
	}
	return nil
}
