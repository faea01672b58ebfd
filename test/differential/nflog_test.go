// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The messages and attributes of nfnetlink_log.h that are used.
const (
	logPacket, logConfig               = unix.NFNL_SUBSYS_ULOG << 8, unix.NFNL_SUBSYS_ULOG<<8 | 1
	attrHeader, attrIn, attrOut        = 1, 4, 5
	attrPayload, attrPrefix            = 9, 10
	configCommand, configMode          = 1, 2
	configThreshold, commandBind, copy = 5, 1, 2
)

// The hooks, as linux/netfilter.h numbers them.
const hookIn = 1

// logged is one packet that a rule logged.
type logged struct {
	group   int
	hook    int
	prefix  string
	in, out int // interfaces, 0 = none
	payload []byte
}

// nflog reads packets that rules log.
type nflog struct {
	fd  int
	buf []byte
}

func openLog(groups ...int) (*nflog, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	l := &nflog{fd, make([]byte, 1<<16)}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	for _, group := range groups {
		for _, attr := range [][]byte{
			attribute(configCommand, []byte{commandBind}),
			attribute(configMode, []byte{0, 0, 1, 0, copy, 0}), // the first 256 bytes
			attribute(configThreshold, []byte{0, 0, 0, 1}),     // each packet at once
		} {
			if err := l.configure(group, attr); err != nil {
				return nil, fmt.Errorf("bind NFLOG group %d: %w", group, err)
			}
		}
	}
	return l, nil
}

func attribute(kind uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, data...)
	return append(b, make([]byte, -len(b)&3)...)
}

// configure sends one attribute and waits for the answer.
func (l *nflog) configure(group int, attr []byte) error {
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+4+len(attr)))
	b = binary.NativeEndian.AppendUint16(b, logConfig)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence and port
	b = append(b, unix.AF_UNSPEC, 0, byte(group>>8), byte(group))
	if err := unix.Sendto(l.fd, append(b, attr...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	for {
		n, _, err := unix.Recvfrom(l.fd, l.buf, 0)
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		for kind, data := range messages(l.buf[:n]) {
			if kind != unix.NLMSG_ERROR || len(data) < 4 {
				continue // a packet of a group that is bound already
			}
			if code := int32(binary.NativeEndian.Uint32(data)); code != 0 {
				return unix.Errno(-code)
			}
			return nil
		}
	}
}

// read gives what was logged up to now to fn. While fn asks for more it waits
// for it, until the deadline.
func (l *nflog) read(deadline time.Time, fn func(logged) (more bool)) error {
	more := true
	for {
		wait := 0
		if more {
			wait = max(0, int(time.Until(deadline).Milliseconds()))
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}, wait)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			return nil
		}
		n, _, err = unix.Recvfrom(l.fd, l.buf, 0)
		if err != nil {
			return fmt.Errorf("read packets that were logged: %w", os.NewSyscallError("recvfrom", err))
		}
		for kind, data := range messages(l.buf[:n]) {
			if kind == logPacket && len(data) >= 4 {
				more = fn(parseLogged(data))
			}
		}
	}
}

// messages are those of a read, by type.
func messages(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 16 {
			size := int(binary.NativeEndian.Uint32(b))
			if size < 16 || size > len(b) || !yield(binary.NativeEndian.Uint16(b[4:]), b[16:size]) {
				return
			}
			b = b[min(len(b), size+(-size&3)):]
		}
	}
}

func parseLogged(data []byte) logged {
	p := logged{group: int(binary.BigEndian.Uint16(data[2:]))}
	for b := data[4:]; len(b) >= 4; {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED
		if size < 4 || size > len(b) {
			break
		}
		value := b[4:size]
		switch kind {
		case attrHeader:
			p.hook = int(value[2])
		case attrIn:
			p.in = int(binary.BigEndian.Uint32(value))
		case attrOut:
			p.out = int(binary.BigEndian.Uint32(value))
		case attrPayload:
			p.payload = append([]byte(nil), value...)
		case attrPrefix:
			p.prefix = strings.TrimRight(string(value), "\x00")
		}
		b = b[min(len(b), size+(-size&3)):]
	}
	return p
}
