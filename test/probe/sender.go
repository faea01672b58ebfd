// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Packets come from these ports in turn: by the time that one is used again, connection tracking has forgotten it.
const firstPort, lastPort = 10_000, 59_999

// sender sends packets with their numbers, each from a port of its own, so that no connection that is tracked already
// lets it pass.
type sender struct {
	from  Namespace
	to    netip.AddrPort
	ready chan struct{} // closed after the first packet
	stop  chan struct{}
	done  chan struct{} // closed at the end
	port  int           // of the next packet
	err   error         // why it ended, once done

	mu   sync.Mutex
	sent []time.Time
}

func newSender(from Namespace, to netip.AddrPort, port int) *sender {
	return &sender{from: from, to: to, port: port, ready: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
}

func (s *sender) run() {
	defer close(s.done)
	s.err = s.from.Do(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		to := &unix.SockaddrInet4{Addr: s.to.Addr().As4(), Port: int(s.to.Port())}
		pause := unix.NsecToTimespec(int64(every))
		for number := uint64(0); ; number++ {
			select {
			case <-s.stop:
				return nil
			default:
			}
			at := time.Now()
			if err := send(s.port, to, number); err != nil {
				return err
			}
			if s.port++; s.port > lastPort {
				s.port = firstPort
			}
			s.mu.Lock()
			s.sent = append(s.sent, at)
			s.mu.Unlock()
			if number == 0 {
				close(s.ready)
			}
			if err := unix.Nanosleep(&pause, nil); err != nil && !errors.Is(err, unix.EINTR) {
				return os.NewSyscallError("nanosleep", err)
			}
		}
	})
}

// started waits for the first packet.
func (s *sender) started(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-s.done: // with an error
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// end stops it, and returns the port of the packet after the last.
func (s *sender) end() int {
	close(s.stop)
	<-s.done
	return s.port
}

// all is when each packet was sent.
func (s *sender) all() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[:len(s.sent):len(s.sent)]
}

func send(from int, to unix.Sockaddr, number uint64) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }() // a datagram is sent or isn't
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: from}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	return os.NewSyscallError("sendto", unix.Sendto(fd, binary.BigEndian.AppendUint64(nil, number), 0, to))
}
