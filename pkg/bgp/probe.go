// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What gobgp does (4.7 and 4.8): it closes each connection of a neighbour whose session is up, where RFC 4724, section 4.2,
// has the former one closed.
// To reproduce: cut the power of a host and start it again (TestReturnsUnheard).
// What it costs: the host, which knows nothing of its former session, has none with its neighbours until their hold time
// ends, 90 s by default.
// What is done here: the kernel finds out whether the former connection is alive, which ends it where it isn't. A new
// connection alone proves nothing: anybody on that host may make one.

// probeAfter is how long nothing was heard by a connection that is probed.
const probeAfter = 5 * time.Second

// reconnects notes that a neighbour has connected. That is in doubt where it has a session.
func (t *sessions) reconnects(a netip.Addr) {
	t.mu.Lock()
	e := t.table[a]
	doubted := e != nil && e.state == Established
	if doubted {
		e.doubted = true
	}
	t.mu.Unlock()
	if doubted {
		t.wake()
	}
}

// doubts are the neighbours whose sessions are in doubt; it is said once.
func (t *sessions) doubts() (list []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a, e := range t.table {
		if e.doubted && e.state == Established {
			list = append(list, a)
		}
		e.doubted = false
	}
	return list
}

// probeDoubted has the kernel find out whether the sessions in doubt are alive.
func (s *Speaker) probeDoubted() error {
	var errs []error
	for _, a := range s.sessions.doubts() {
		if has, runs := s.run.sessions[a]; runs {
			if err := probe(a, s.run.speaker.ListenPort, has.port); err != nil {
				errs = append(errs, fmt.Errorf("BGP neighbour %s: see whether its session is alive: %w", a, err))
			}
		}
	}
	return errors.Join(errs...)
}

// probe does so with the connections of this process to an address that have one of the ports: that where we listen at
// our end, or the neighbour's at its own. The library keeps them to itself, and tells no end of them.
func probe(a netip.Addr, ours, theirs uint16) error {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return fmt.Errorf("%s/%s: want a number", dir, e.Name())
		}
		if !leadsTo(fd, a, ours, theirs) {
			continue
		}
		// It may be closed meanwhile, and the number be another's.
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if leadsTo(own, a, ours, theirs) {
			errs = append(errs, probeOne(own))
		}
		errs = append(errs, unix.Close(own))
	}
	return errors.Join(errs...)
}

// leadsTo says whether a file is a connection to an address that has one of the ports.
func leadsTo(fd int, a netip.Addr, ours, theirs uint16) bool {
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return false // it is no connection
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	to, from := addrPort(peer), addrPort(local)
	return to.Addr() == a && (from.Port() == ours || to.Port() == theirs)
}

func addrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), uint16(s.Port))
	}
	return netip.AddrPort{}
}

// probeOne asks the neighbour's kernel, which answers for a connection that it doesn't know by ending it. What was sent
// and isn't acknowledged keeps the kernel from asking: it sends that again, later each time. By then the host that made a
// connection would have acknowledged it.
func probeOne(fd int) error {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return fmt.Errorf("TCP_INFO: %w", err)
	}
	if info.State == unix.BPF_TCP_ESTABLISHED && info.Unacked > 0 && info.Backoff > 1 {
		return unix.Shutdown(fd, unix.SHUT_RDWR)
	}
	for _, o := range []struct{ level, option, value int }{
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(probeAfter / time.Second)},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("keep-alives: %w", err)
		}
	}
	return nil
}
