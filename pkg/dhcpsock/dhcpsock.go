// SPDX-License-Identifier: Apache-2.0

// Package dhcpsock opens sockets that receive a virtual machine's requests to DHCP and routers on its tap, and answer
// them. They work below IP: the host has none of the addresses involved, such as a subnet's gateway, and no port is
// taken from another DHCP server on it.
package dhcpsock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// receiveBuffer limits what may be queued per tap, as counted by the kernel: some tens of requests. Requests that come
// faster than they are answered are dropped there, at no cost to others.
const receiveBuffer = 32 << 10

// Socket is a socket on one interface.
type Socket struct {
	conn *packet.Conn
	raw  interface{ Control(func(fd uintptr)) error }
	name string
}

// Open opens a socket on an interface of the current network namespace. The error wraps os.ErrNotExist if there is
// none.
func Open(name string) (*Socket, error) {
	index, err := indexOf(name)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", name, err)
	}
	filter, err := bpf.Assemble(questions)
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	conn, err := packet.Listen(&net.Interface{Index: index, Name: name}, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("open a socket at interface %s: %w", name, missing(err))
	}
	s := &Socket{conn: conn, name: name}
	if s.raw, err = conn.SyscallConn(); err == nil {
		err = s.set(map[int]int{unix.PACKET_IGNORE_OUTGOING: 1})
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("set up a socket at interface %s: %w", name, missing(err))
	}
	return s, nil
}

// set sets options of packet sockets, and the size of the buffer.
func (s *Socket) set(options map[int]int) error {
	var err error
	control := s.raw.Control(func(fd uintptr) {
		for option, value := range options {
			err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_PACKET, option, value))
		}
		err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer))
	})
	return errors.Join(control, err)
}

// Receive waits for a frame and returns it in buf, or returns nil at the time until. The error wraps os.ErrNotExist if
// the interface is gone or down.
func (s *Socket) Receive(buf []byte, until time.Time) ([]byte, error) {
	if err := s.conn.SetReadDeadline(until); err != nil {
		return nil, fmt.Errorf("wait at interface %s: %w", s.name, err)
	}
	n, _, err := s.conn.ReadFrom(buf)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("receive at interface %s: %w", s.name, missing(err))
	}
	return buf[:n], nil
}

// Send sends a frame, including its Ethernet header.
func (s *Socket) Send(frame []byte) error {
	if _, err := s.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		return fmt.Errorf("send at interface %s: %w", s.name, missing(err))
	}
	return nil
}

// MTU returns the interface's MTU, 0 if it can't be read.
func (s *Socket) MTU() (mtu int) {
	ifr, err := unix.NewIfreq(s.name)
	if err != nil {
		return 0
	}
	_ = s.raw.Control(func(fd uintptr) {
		if unix.IoctlIfreq(int(fd), unix.SIOCGIFMTU, ifr) == nil {
			mtu = int(ifr.Uint32())
		}
	})
	return mtu
}

// Close ends Receive.
func (s *Socket) Close() error { return s.conn.Close() }

// indexOf queries a single interface; net.InterfaceByName would read all of them.
func indexOf(name string) (int, error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, missing(err)
	}
	return int(ifr.Uint32()), nil
}

// missing makes the error wrap os.ErrNotExist if it is one of the kernel's errors for an interface that is gone or
// down.
func missing(err error) error {
	for _, gone := range []error{unix.ENODEV, unix.ENXIO, unix.ENETDOWN} {
		if errors.Is(err, gone) {
			return fmt.Errorf("%w: %w", os.ErrNotExist, err)
		}
	}
	return err
}
