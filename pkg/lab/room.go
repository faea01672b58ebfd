// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// room is what a socket with room holds: seconds of a packet each millisecond.
const room = 8 << 20

// GiveRoom has sockets hold what arrives until this process gets a CPU to read
// it. A test that counts packets needs it: the kernel drops what has no room, and
// that looks like a loss on the wire.
func GiveRoom(conns ...syscall.Conn) error {
	for _, c := range conns {
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		var set error
		err = raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room)
			if errors.Is(set, unix.EPERM) { // root of a user namespace gets what everybody does
				set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, room)
			}
		})
		if err := errors.Join(err, set); err != nil {
			return fmt.Errorf("give a socket room for %d bytes: %w", room, err)
		}
	}
	return nil
}
