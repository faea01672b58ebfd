// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxBatch is how many requests go out in one send: their answers must fit
	// into the socket's receive buffer.
	maxBatch = 48
	// maxBatchBytes bounds one send for the same reason.
	maxBatchBytes = 24 << 10
	// dumpTries is how often a dump that was overtaken by changes is repeated.
	dumpTries = 20
	// answerTimeout is when the kernel is taken not to answer any more.
	answerTimeout = 20 * time.Second
	receiveSize   = 32 << 10 // the kernel sends no more at once (netlink_recvmsg)
)

// socket is a route netlink socket. It stays in the namespace it was opened in.
// It sends several requests at once, which the kernel handles in order: the
// library's handle waits for the answer to each. Not for concurrent use.
type socket struct {
	fd   int
	port uint32
	seq  uint32
	buf  []byte
}

// answer is what the kernel said to one request.
type answer struct {
	err  error
	data []received // what came before the acknowledgement
}

// received is one message: its kind and what follows the header.
type received struct {
	kind uint16
	body []byte
}

// openSocket opens a socket in the calling thread's namespace.
func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a route netlink socket: %w", err)
	}
	s := &socket{fd: fd, buf: make([]byte, receiveSize)}
	if err := s.prepare(); err != nil {
		s.close()
		return nil, fmt.Errorf("open a route netlink socket: %w", err)
	}
	return s, nil
}

func (s *socket) prepare() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	if a, ok := name.(*unix.SockaddrNetlink); ok {
		s.port = a.Pid
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

func (s *socket) close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}

// do sends the requests, in order, and returns the kernel's answer to each. One
// that fails doesn't stop those after it. The error is of the socket itself.
func (s *socket) do(requests ...*message) ([]answer, error) {
	answers := make([]answer, 0, len(requests))
	for len(requests) > 0 {
		n, size := 0, 0
		for n < len(requests) && n < maxBatch && (n == 0 || size+len(*requests[n]) <= maxBatchBytes) {
			size += align4(len(*requests[n]))
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

// ask sends one request and returns its answer.
func (s *socket) ask(request *message) ([]received, error) {
	answers, err := s.do(request)
	if err != nil {
		return nil, err
	}
	return answers[0].data, answers[0].err
}

// stamp finishes a request: length and sequence number.
func (s *socket) stamp(m *message, flags uint16) uint32 {
	s.seq++
	b := *m
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[6:], binary.NativeEndian.Uint16(b[6:])|flags)
	binary.NativeEndian.PutUint32(b[8:], s.seq)
	return s.seq
}

func (s *socket) batch(requests []*message, size int) ([]answer, error) {
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
	answers := make([]answer, len(requests))
	for left := len(requests); left > 0; {
		err := s.receive(func(h header, body []byte) {
			i := int(h.seq - first)
			if h.port != s.port || i < 0 || i >= len(answers) {
				return
			}
			if h.kind != unix.NLMSG_ERROR {
				answers[i].data = append(answers[i].data, received{h.kind, append([]byte(nil), body...)})
				return
			}
			answers[i].err = parseError(h, body)
			left--
		})
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// dump returns every message of a dump.
func (s *socket) dump(request *message) ([]received, error) {
	var all []received
	var kept []byte
	err := s.walk(request, func() { all = nil }, func(m received) {
		if cap(kept)-len(kept) < len(m.body) {
			kept = make([]byte, 0, max(receiveSize, len(m.body)))
		}
		n := len(kept)
		kept = append(kept, m.body...)
		all = append(all, received{m.kind, kept[n:len(kept):len(kept)]})
	})
	return all, err
}

// walk calls fn for every message of a dump; what it gets is overwritten later.
// The kernel marks a dump that changes overtook, which may have holes: it is
// asked for again, after a call of restart.
func (s *socket) walk(request *message, restart func(), fn func(received)) error {
	for range dumpTries {
		whole, err := s.walkOnce(request, fn)
		if err != nil || whole {
			return err
		}
		restart()
	}
	return fmt.Errorf("dump: changed under way %d times: %w", dumpTries, unix.EINTR)
}

func (s *socket) walkOnce(request *message, fn func(received)) (whole bool, err error) {
	seq := s.stamp(request, unix.NLM_F_DUMP)
	if err := s.send(*request); err != nil {
		return false, err
	}
	whole = true
	var failed error
	for done := false; !done; {
		err := s.receive(func(h header, body []byte) {
			if h.port != s.port || h.seq != seq {
				return
			}
			if h.flags&unix.NLM_F_DUMP_INTR != 0 {
				whole = false
			}
			switch h.kind {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				failed = parseError(h, body)
				done = true
			default:
				fn(received{h.kind, body})
			}
		})
		if err != nil {
			return false, err
		}
	}
	return whole, failed
}

func (s *socket) send(b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("send to netlink", err)
		}
	}
}

type header struct {
	kind, flags uint16
	seq, port   uint32
}

// receive waits for one datagram and calls fn for every message in it.
func (s *socket) receive(fn func(header, []byte)) error {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("receive from netlink: no answer within %s: %w", answerTimeout, os.ErrDeadlineExceeded)
		}
		if err != nil {
			return os.NewSyscallError("receive from netlink", err)
		}
		messages(s.buf[:n], fn)
		return nil
	}
}

// messages calls fn for every netlink message in b.
func messages(b []byte, fn func(header, []byte)) {
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return
		}
		fn(header{
			kind:  binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			port:  binary.NativeEndian.Uint32(b[12:]),
		}, b[unix.SizeofNlMsghdr:n:n])
		b = b[min(align4(n), len(b)):]
	}
}

// parseError reads struct nlmsgerr, and the text that newer kernels add.
func parseError(h header, body []byte) error {
	code := -int32(u32(body))
	if code == 0 {
		return nil
	}
	rest := body[min(4, len(body)):]
	if h.kind == unix.NLMSG_ERROR {
		skip := unix.SizeofNlMsghdr // the request's header, and the rest of it unless capped
		if h.flags&unix.NLM_F_CAPPED == 0 && len(rest) >= 4 {
			skip = align4(int(u32(rest)))
		}
		rest = rest[min(skip, len(rest)):]
	}
	var why string
	if h.flags&unix.NLM_F_ACK_TLVS != 0 {
		attributes(rest, func(kind uint16, data []byte) {
			if kind == unix.NLMSGERR_ATTR_MSG {
				why = text(data)
			}
		})
	}
	if why != "" {
		return fmt.Errorf("%w (%s)", unix.Errno(code), why)
	}
	return unix.Errno(code)
}

// sum adds up a digest of every message of a dump.
func (s *socket) sum(request *message, digest func(received) uint64) (sum uint64, err error) {
	err = s.walk(request, func() { sum = 0 }, func(m received) { sum += digest(m) })
	return sum, err
}
