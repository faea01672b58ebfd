// SPDX-License-Identifier: Apache-2.0

package nfnl

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

// ErrInterrupted says that the ruleset changed while it was read, and it isn't known what of it.
var ErrInterrupted = errors.New("the ruleset changed while it was read")

// socket talks to nftables. It is good for one goroutine at a time.
type socket struct {
	table string // the name of the one that is ours
	fd    int
	port  uint32
	seq   uint32
	buf   []byte
	// events tell whether it was our table that changed; nil = nobody does.
	events *eventSocket
	// most is how large a batch may be where buffers can't be made larger, 0 = as
	// the kernel says.
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

// request is a question, and what the kernel said to it.
type request struct {
	kind  int
	flags uint16
	body  []byte
	fn    func(kind uint16, body []byte) // gets each answer's attributes
	err   error                          // the kernel's
	// overtaken: the answers are whole, but some transaction took place between them.
	overtaken bool
}

// ask sends one request, a dump or one that is acknowledged. Where others change their own
// tables all the time, no large dump would ever be of one generation. That needn't be: of
// one table's rules, sets and elements the kernel keeps count apart. Not so of chains.
func (s *socket) ask(kind int, flags uint16, body []byte, fn func(kind uint16, body []byte)) error {
	since := 0
	if s.events != nil {
		since = s.events.mark()
	}
	r := request{kind: kind, flags: flags, body: body, fn: fn}
	if err := s.exchange([]*request{&r}); err != nil {
		return err
	}
	if r.overtaken && kind != unix.NFT_MSG_GETCHAIN {
		if _, calm := s.calm(since); calm {
			return nil
		}
	}
	return r.err
}

// calm is the generation of the ruleset, and whether it is certain that nobody else changed
// our table since the events were asked for a mark.
func (s *socket) calm(since int) (generation uint32, calm bool) {
	if s.events == nil {
		return 0, false
	}
	g, err := s.generation()
	return g, err == nil && s.events.quiet(since, g)
}

func (s *socket) generation() (uint32, error) {
	g := uint32(0)
	err := s.ask(unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, nil, func(_ uint16, body []byte) {
		g = uint32(number(attr(body, unix.NFTA_GEN_ID)))
	})
	if err != nil {
		return 0, fmt.Errorf("read the generation of the ruleset: %w", err)
	}
	return g, nil
}

// exchange sends requests in one piece, of which no more than one may be a dump,
// and waits for the end of the answers to each. The error is the socket's.
func (s *socket) exchange(requests []*request) error {
	first := s.seq + 1
	var b []byte
	for _, r := range requests {
		var at int
		b, at = openMessage(b, r.kind, r.flags, s.next())
		b = closeMessage(append(b, r.body...), at)
	}
	if err := s.send(b); err != nil {
		return err
	}
	interrupted := false
	for left := len(requests); left > 0; {
		b, err := s.receive()
		if err != nil {
			return err
		}
		for h, body := range messages(b) {
			if h.seq-first >= uint32(len(requests)) {
				continue // of a request that was given up
			}
			r := requests[h.seq-first]
			interrupted = interrupted || h.flags&unix.NLM_F_DUMP_INTR != 0
			switch h.kind {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				left--
				if r.err = errnoOf(body); interrupted && h.kind == unix.NLMSG_DONE {
					r.overtaken, r.err = r.err == nil, ErrInterrupted
				}
			default:
				if len(body) >= familySize {
					r.fn(h.kind&0xff, body[familySize:])
				}
			}
		}
	}
	return nil
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
		return ErrInterrupted
	}
	return nil
}
