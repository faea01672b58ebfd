// SPDX-License-Identifier: Apache-2.0

// Package rtnl speaks to the kernel about one network namespace: route netlink's sockets and messages,
// addresses, routes and neighbours as the kernel has them, its notices, sysctls, and the way into a namespace.
package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxBatch is how many requests go out in one send: their answers must fit
	// into the socket's receive buffer.
	MaxBatch = 48
	// maxBatchBytes bounds one send for the same reason.
	maxBatchBytes = 24 << 10
	// dumpTries is how often a dump that was overtaken by changes is repeated.
	dumpTries = 20
	// answerTimeout is when the kernel is taken not to answer any more.
	answerTimeout = 20 * time.Second
	ReceiveSize   = 32 << 10 // the kernel sends no more at once (netlink_recvmsg)
)

// Socket is a route netlink socket. It stays in the namespace it was opened in.
// It sends several requests at once, which the kernel handles in order: the
// library's handle waits for the answer to each. Not for concurrent use.
type Socket struct {
	fd   int
	Port uint32
	seq  uint32
	Buf  []byte
}

// Answer is what the kernel said to one request.
type Answer struct {
	Err  error
	Data []Received // what came before the acknowledgement
}

// Received is one message: its kind and what follows the header.
type Received struct {
	Kind uint16
	Body []byte
}

// Open opens a socket in the calling thread's namespace.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a route netlink socket: %w", err)
	}
	s := &Socket{fd: fd, Buf: make([]byte, ReceiveSize)}
	if err := s.prepare(); err != nil {
		s.Close()
		return nil, fmt.Errorf("open a route netlink socket: %w", err)
	}
	return s, nil
}

func (s *Socket) prepare() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	if a, ok := name.(*unix.SockaddrNetlink); ok {
		s.Port = a.Pid
	}
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	// Older kernels lack these. Without them errors have no text, answers are
	// longer, and dumps hold more than was asked for: all is looked at again here.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	return nil
}

// Close closes it.
func (s *Socket) Close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}

// Do sends the requests, in order, and returns the kernel's answer to each. One
// that fails doesn't stop those after it. The error is of the socket itself.
func (s *Socket) Do(requests ...*Message) ([]Answer, error) {
	answers := make([]Answer, 0, len(requests))
	for len(requests) > 0 {
		n, size := 0, 0
		for n < len(requests) && n < MaxBatch && (n == 0 || size+len(*requests[n]) <= maxBatchBytes) {
			size += Align4(len(*requests[n]))
			n++
		}
		got, err := s.batch(requests[:n], size)
		if err != nil {
			return nil, err
		}
		answers = append(answers, got...)
		requests = requests[n:]
	}
	return answers, nil
}

// Ask sends one request and returns its answer.
func (s *Socket) Ask(request *Message) ([]Received, error) {
	answers, err := s.Do(request)
	if err != nil {
		return nil, err
	}
	return answers[0].Data, answers[0].Err
}

// stamp finishes a request: length and sequence number.
func (s *Socket) stamp(m *Message, flags uint16) uint32 {
	s.seq++
	b := *m
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[6:], binary.NativeEndian.Uint16(b[6:])|flags)
	binary.NativeEndian.PutUint32(b[8:], s.seq)
	return s.seq
}

func (s *Socket) batch(requests []*Message, size int) ([]Answer, error) {
	out := make([]byte, 0, size)
	first := s.seq + 1
	for _, m := range requests {
		s.stamp(m, unix.NLM_F_ACK)
		out = append(out, *m...)
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
	}
	if err := s.send(out); err != nil {
		return nil, err
	}
	answers := make([]Answer, len(requests))
	for left := len(requests); left > 0; {
		err := s.receive(func(h Header, body []byte) {
			i := int(h.seq - first)
			if h.Port != s.Port || i < 0 || i >= len(answers) {
				return
			}
			if h.Kind != unix.NLMSG_ERROR {
				answers[i].Data = append(answers[i].Data, Received{h.Kind, append([]byte(nil), body...)})
				return
			}
			answers[i].Err = parseError(h, body)
			left--
		})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Dump returns every message of a dump.
func (s *Socket) Dump(request *Message) ([]Received, error) {
	var all []Received
	var kept []byte
	err := s.Walk(request, func() { all = nil }, func(m Received) {
		if cap(kept)-len(kept) < len(m.Body) {
			kept = make([]byte, 0, max(ReceiveSize, len(m.Body)))
		}
		n := len(kept)
		kept = append(kept, m.Body...)
		all = append(all, Received{m.Kind, kept[n:len(kept):len(kept)]})
	})
	return all, err
}

// Walk calls fn for every message of a dump; what it gets is overwritten later.
// The kernel marks a dump that changes overtook, which may have holes: it is
// asked for again, after a call of restart.
func (s *Socket) Walk(request *Message, restart func(), fn func(Received)) error {
	for range dumpTries {
		whole, err := s.walkOnce(request, fn)
		if err != nil || whole {
			return err
		}
		restart()
	}
	return fmt.Errorf("dump: changed under way %d times: %w", dumpTries, unix.EINTR)
}

func (s *Socket) walkOnce(request *Message, fn func(Received)) (whole bool, err error) {
	seq := s.stamp(request, unix.NLM_F_DUMP)
	if err := s.send(*request); err != nil {
		return false, err
	}
	whole = true
	var failed error
	for done := false; !done; {
		err := s.receive(func(h Header, body []byte) {
			if h.Port != s.Port || h.seq != seq {
				return
			}
			if h.flags&unix.NLM_F_DUMP_INTR != 0 {
				whole = false
			}
			switch h.Kind {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				failed = parseError(h, body)
				done = true
			default:
				fn(Received{h.Kind, body})
			}
		})
		if err != nil {
			return false, err
		}
	}
	return whole, failed
}

func (s *Socket) send(b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("send to netlink", err)
		}
	}
}

type Header struct {
	Kind, flags uint16
	seq, Port   uint32
}

// receive waits for one datagram and calls fn for every message in it.
func (s *Socket) receive(fn func(Header, []byte)) error {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.Buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("receive from netlink: no answer within %s: %w", answerTimeout, os.ErrDeadlineExceeded)
		}
		if err != nil {
			return os.NewSyscallError("receive from netlink", err)
		}
		Messages(s.Buf[:n], fn)
		return nil
	}
}

// Messages calls fn for every netlink message in b.
func Messages(b []byte, fn func(Header, []byte)) {
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return
		}
		fn(Header{
			Kind:  binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			Port:  binary.NativeEndian.Uint32(b[12:]),
		}, b[unix.SizeofNlMsghdr:n:n])
		b = b[min(Align4(n), len(b)):]
	}
}

// parseError reads struct nlmsgerr, and the text that newer kernels add.
func parseError(h Header, body []byte) error {
	code := -int32(Uint32(body))
	if code == 0 {
		return nil
	}
	rest := body[min(4, len(body)):]
	if h.Kind == unix.NLMSG_ERROR {
		skip := unix.SizeofNlMsghdr // the request's header, and the rest of it unless capped
		if h.flags&unix.NLM_F_CAPPED == 0 && len(rest) >= 4 {
			skip = Align4(int(Uint32(rest)))
		}
		rest = rest[min(skip, len(rest)):]
	}
	var why string
	if h.flags&unix.NLM_F_ACK_TLVS != 0 {
		Attributes(rest, func(kind uint16, data []byte) {
			if kind == unix.NLMSGERR_ATTR_MSG {
				why = Text(data)
			}
		})
	}
	if why != "" {
		return fmt.Errorf("%w (%s)", unix.Errno(code), why)
	}
	return unix.Errno(code)
}

// Sum adds up a digest of every message of a dump.
func (s *Socket) Sum(request *Message, digest func(Received) uint64) (sum uint64, err error) {
	err = s.Walk(request, func() { sum = 0 }, func(m Received) { sum += digest(m) })
	return sum, err
}
