// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// room is the size of a large receive buffer: it holds seconds of one packet per millisecond.
const room = 8 << 20

// GiveRoom enlarges the receive buffers of sockets, so that they hold what arrives until this process gets a CPU to
// read it. A test that counts packets needs it: the kernel drops what doesn't fit, which looks like a loss on the wire.
func GiveRoom(conns ...syscall.Conn) error {
	for _, c := range conns {
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		err = raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room)
			if errors.Is(set, unix.EPERM) { // root of a user namespace gets the same as any user
				set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, room)
			}
		})
		if err := errors.Join(err, set); err != nil {
			return fmt.Errorf("give a socket room for %d bytes: %w", room, err)
		}
	}
	return nil
}
