// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// receiveSize is the buffer for an answer. The kernel's answers have at most 32 KiB, and it ends a dump at a rule that doesn't fit into
	// the last receive buffer, as if there were no more (netlink_dump in net/netlink/af_netlink.c): mdlayher/netlink receives with a page.
	receiveSize   = 1 << 17
	receiveBuffer = 8 << 20
	answerSeconds = 30
)

// socket is an nfnetlink socket for requests. It is not safe for concurrent use.
type socket struct {
	fd     int
	family byte // of the table
	port   uint32
	seq    uint32
	buf    []byte
	// most is the largest batch if buffers can't be enlarged, 0 = as the kernel says.
	most int
}

func (s *socket) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	s.fd, s.buf = fd, make([]byte, receiveSize)
	if err := s.setUp(); err != nil {
		s.close()
		return err
	}
	return nil
}

func (s *socket) setUp() error {
	setBuffer(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer)
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerSeconds}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	// An error repeats only the header of its message: the batch is large.
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

// setBuffer makes a buffer as large as allowed.
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

// sendBuffer makes room for a batch and returns how large one may be.
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

// header is the header of a netlink message.
type header struct {
	kind, flags uint16
	seq, port   uint32
}

const (
	headerSize = unix.SizeofNlMsghdr
	familySize = 4 // nfgenmsg: family, version, resource
)

// appendMessage appends a message to nftables.
func appendMessage(b []byte, family byte, kind int, flags uint16, seq uint32, body []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(headerSize+familySize+len(body)))
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.NFNL_SUBSYS_NFTABLES<<8|kind))
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(append(b, family, unix.NFNETLINK_V0, 0, 0), body...)
}

// messages iterates over the messages in b.
func messages(b []byte) iter.Seq2[header, []byte] {
	return func(yield func(header, []byte) bool) {
		for len(b) >= headerSize {
			n := int(binary.NativeEndian.Uint32(b))
			if n < headerSize || n > len(b) {
				return
			}
			h := header{
				binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]),
				binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:]),
			}
			if !yield(h, b[headerSize:n]) {
				return
			}
			b = b[min(len(b), (n+3)&^3):]
		}
	}
}

// request is a request, which has one answer unless it is for a dump.
type request struct {
	kind  int
	flags uint16
	body  []byte
	fn    func(body []byte) // gets each answer's attributes
	err   error             // the kernel's
}

// exchange sends requests in one piece, at most one of them for a dump, and waits for the answers to each. The error is the socket's.
func (s *socket) exchange(requests []*request) error {
	first := s.seq + 1
	var b []byte
	for _, r := range requests {
		b = appendMessage(b, s.family, r.kind, r.flags, s.next(), r.body)
	}
	if err := s.send(b); err != nil {
		return err
	}
	for left := len(requests); left > 0; {
		b, err := s.receive()
		if err != nil {
			return err
		}
		for h, body := range messages(b) {
			if h.seq-first >= uint32(len(requests)) {
				continue // the answer to an abandoned request
			}
			r := requests[h.seq-first]
			if h.flags&unix.NLM_F_DUMP_INTR != 0 {
				r.err = ErrInterrupted
			}
			switch h.kind {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				left--
				if err := errnoOf(body); err != nil {
					r.err = err
				}
			default:
				if r.fn(body[min(familySize, len(body)):]); r.flags&unix.NLM_F_DUMP == 0 {
					left--
				}
			}
		}
	}
	return nil
}

// errnoOf returns the error in an answer, nil for an acknowledgement.
func errnoOf(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if n := int32(binary.NativeEndian.Uint32(body)); n != 0 {
		if err := unix.Errno(-n); err != unix.EINTR {
			return err
		}
		return ErrInterrupted
	}
	return nil
}
