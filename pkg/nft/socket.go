// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	receiveSize   = 1 << 17
	receiveBuffer = 8 << 20
	answerSeconds = 30
)

// errInterrupted says that the ruleset changed while it was read.
var errInterrupted = errors.New("the ruleset changed while it was read")

// socket talks to nftables. It is good for one goroutine at a time.
type socket struct {
	fd   int
	port uint32
	seq  uint32
	buf  []byte
	// most is how large a batch may be where buffers can't be made larger, 0 = as
	// the kernel says.
	most int
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{fd: fd, buf: make([]byte, receiveSize)}
	if err := s.setUp(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) setUp() error {
	setBuffer(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer)
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerSeconds}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	// An error repeats what it is about only up to the header: the batch is large.
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	if nl, ok := name.(*unix.SockaddrNetlink); ok {
		s.port = nl.Pid
	}
	return nil
}

// setBuffer makes a buffer as large as is allowed.
func setBuffer(fd, force, option, size int) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size)
	}
}

func (s *socket) close() { _ = unix.Close(s.fd) }

func (s *socket) next() uint32 {
	s.seq++
	return s.seq
}

// send sends messages in one piece.
func (s *socket) send(b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("sendto", err)
		}
	}
}

// sendBuffer makes room for a batch and reports how large one can be.
func (s *socket) sendBuffer(size int) int {
	have, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err == nil && have/2 < size {
		setBuffer(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, size+size/8+4096)
		have, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	}
	if err != nil {
		return 0
	}
	if s.most > 0 {
		return min(s.most, have/2)
	}
	return have / 2
}

func (s *socket) receive() ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil, fmt.Errorf("no answer from the kernel within %d s", answerSeconds)
		case err != nil:
			return nil, os.NewSyscallError("recvfrom", err)
		default:
			return s.buf[:n], nil
		}
	}
}

// ask sends one request and hands each answer's attributes to fn. The request is
// a dump, or is acknowledged.
func (s *socket) ask(kind int, flags uint16, body []byte, fn func(kind uint16, body []byte)) error {
	seq := s.next()
	b, at := openMessage(nil, kind, flags, seq)
	b = closeMessage(append(b, body...), at)
	if err := s.send(b); err != nil {
		return err
	}
	interrupted := false
	for {
		b, err := s.receive()
		if err != nil {
			return err
		}
		for h, body := range messages(b) {
			if h.seq != seq {
				continue // of a request that was given up
			}
			interrupted = interrupted || h.flags&unix.NLM_F_DUMP_INTR != 0
			switch h.kind {
			case unix.NLMSG_ERROR:
				return errnoOf(body)
			case unix.NLMSG_DONE:
				if interrupted {
					return errInterrupted
				}
				return errnoOf(body)
			default:
				if len(body) >= familySize {
					fn(h.kind&0xff, body[familySize:])
				}
			}
		}
	}
}

// errnoOf is the error in an answer, nil where it is an acknowledgement.
func errnoOf(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if n := int32(binary.NativeEndian.Uint32(body)); n != 0 {
		if err := unix.Errno(-n); err != unix.EINTR {
			return err
		}
		return errInterrupted
	}
	return nil
}
