// SPDX-License-Identifier: Apache-2.0

// Package probe finds out by packets when a change of policy between two network namespaces comes to effect.
package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/inflight"
)

const (
	// every is the pause between two packets.
	every = 500 * time.Microsecond
	// enough is how many packets that are sent after a change must feel it, in a row.
	enough = 20
)

// A Namespace runs functions in itself, each on a thread of its own.
type Namespace interface{ Do(fn func() error) error }

// A Path is the way from one namespace to an address in another.
type Path struct {
	from Namespace
	to   netip.AddrPort
	conn *net.UDPConn
	port int // that the next packet comes from
}

// Open listens at an address in one namespace for packets from another.
func Open(from, at Namespace, to netip.AddrPort) (*Path, error) {
	p := &Path{from: from, to: to, port: firstPort}
	err := at.Do(func() (err error) {
		p.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := enlarge(p.conn); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close stops listening.
func (p *Path) Close() error { return p.conn.Close() }

// Effect says when a change came to effect: between the sending of two packets.
type Effect struct {
	Before time.Time // of the last packet that didn't feel it; zero = all did
	Since  time.Time // of the first after that
}

// Change sends packets while a function changes policy, and goes on until the change is felt: by what arrives if it allows, else
// by what doesn't.
func (p *Path) Change(ctx context.Context, allows bool, change func() error) (Effect, error) {
	ctx, cancel := context.WithTimeout(ctx, eventually.Limit)
	defer cancel()
	s := newSender(p.from, p.to, p.port)
	go s.run()
	arrived := map[uint64]bool{}
	// What arrives waits in the socket until it is read.
	err := s.started(ctx)
	if err == nil {
		err = change()
	}
	changed := time.Now()
	var effect Effect
	if err == nil {
		err = eventually.Wait(ctx, fmt.Sprintf("%d packets in a row to feel the change", enough), func() error {
			sent, felt := s.all(), 0
			if failed := errors.Join(inflight.Wait(), receive(p.conn, arrived)); failed != nil {
				return failed
			}
			if effect, felt = judge(sent, arrived, allows, changed); felt < enough {
				return fmt.Errorf("%d of %d packets to %s arrived", len(arrived), len(sent), p.to)
			}
			return nil
		})
	}
	p.port = s.end()
	return effect, errors.Join(err, s.err, inflight.Wait(), receive(p.conn, arrived))
}

// judge finds since when all packets have felt a change, and how many have that were sent after it was made.
func judge(sent []time.Time, arrived map[uint64]bool, allows bool, changed time.Time) (e Effect, felt int) {
	for i, at := range sent {
		if arrived[uint64(i)] != allows {
			e, felt = Effect{Before: at}, 0
			continue
		}
		if e.Since.IsZero() {
			e.Since = at
		}
		if at.After(changed) {
			felt++
		}
	}
	return e, felt
}

// enlarge makes room for all packets that may arrive before they are read.
func enlarge(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	control := raw.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20))
	})
	return errors.Join(control, err)
}

// receive notes the packets that have arrived.
func receive(conn *net.UDPConn, arrived map[uint64]bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	control := raw.Control(func(fd uintptr) {
		var packet [8]byte
		for {
			n, _, e := unix.Recvfrom(int(fd), packet[:], unix.MSG_DONTWAIT)
			switch {
			case errors.Is(e, unix.EAGAIN):
				return
			case e != nil:
				err = os.NewSyscallError("recvfrom", e)
				return
			case n == len(packet):
				arrived[binary.BigEndian.Uint64(packet[:])] = true
			}
		}
	})
	return errors.Join(control, err)
}
