// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

const (
	probePort = 7000
	// Packets come from these ports in turn: by the time that one is used again,
	// connection tracking has forgotten it.
	probeFrom, probeTo = 10_000, 60_000

	probeEvery = 500 * time.Microsecond
	// probesAfter is how many packets are sent after the gate's answer, and
	// probeAfter how long the last are waited for.
	probesAfter = 20
	probeAfter  = 50 * time.Millisecond
)

// probed is what packets felt of a change.
type probed struct {
	name          string
	written, felt []time.Duration
}

// probe lets policy allow and deny what one pod sends to another.
func (p *policyHost) probe(ctx context.Context, count int) ([]probed, error) {
	var pods [2]*lab.Pod
	for i, name := range []string{"sender", "receiver"} {
		pod, err := p.host.AddPod(ctx, name, lab.PodConfig{})
		if err != nil {
			return nil, err
		}
		pods[i] = pod
	}
	to := netip.AddrPortFrom(pods[1].Addrs()[0], probePort)
	var conn *net.UDPConn
	err := pods[1].Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is written to it
	if err := enlarge(conn); err != nil {
		return nil, err
	}
	out := []probed{{name: "a packet that policy comes to allow"}, {name: "a packet that policy comes to deny"}}
	deny, allow := probePolicy(probePort+1), probePolicy(probePort)
	// The first change has all packets denied.
	revision, err := p.put(ctx, deny)
	if err == nil {
		err = p.enforced(ctx, 0, revision)
	}
	if err != nil {
		return nil, err
	}
	s := &sender{to: to, port: probeFrom}
	for i := range 2 * count {
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
		comes := &out[i%2]
		written, felt, err := p.probeOnce(ctx, s, pods[0], conn, []model.Entry{allow, deny}[i%2], i%2 == 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", comes.name, err)
		}
		comes.written, comes.felt = append(comes.written, written), append(comes.felt, felt)
	}
	return out, nil
}

// probePolicy is for the two pods, and allows one port.
func probePolicy(port uint16) model.Entry {
	order := 1.0
	return model.Entry{
		Key: model.PolicyKey{Tier: "default", Policy: "probe"},
		Value: model.Policy{
			Selector: fmt.Sprintf("has(%s)", lab.Network), Order: &order, // the tag of the network's own profile
			Inbound:  []model.Rule{{Action: model.ActionAllow, Match: model.Match{Protocol: model.ProtocolUDP, DstPorts: []model.Port{{Min: port, Max: port}}}}},
			Outbound: []model.Rule{{Action: model.ActionAllow}},
		},
	}
}

// probeOnce makes one change while packets flow, and finds the first of them
// that felt it. Those sent after the gate's answer must all feel it.
func (p *policyHost) probeOnce(ctx context.Context, s *sender, from *lab.Pod, conn *net.UDPConn, change model.Entry, allow bool) (written, felt time.Duration, err error) {
	s.ready, s.done, s.sent = make(chan struct{}), make(chan error, 1), s.sent[:0]
	s.stop.Store(false)
	go s.run(from)
	arrived := map[uint64]bool{}
	// What arrives waits in the socket until it is counted.
	end := func() error {
		s.stop.Store(true)
		return errors.Join(<-s.done, wait(ctx, probeAfter), receive(conn, arrived))
	}
	select {
	case <-s.ready:
	case <-time.After(10 * time.Second):
	}
	begin := time.Now()
	revision, err := p.put(ctx, change)
	written = time.Since(begin)
	if err == nil {
		err = p.enforced(ctx, 0, revision)
	}
	answered := time.Now()
	for enough := s.count.Load() + probesAfter; err == nil && s.count.Load() < enough && time.Since(answered) < 10*time.Second; {
		err = wait(ctx, probeEvery)
	}
	if err := errors.Join(err, end()); err != nil {
		return 0, 0, err
	}
	first := -1
	for i, at := range s.sent {
		switch felt := arrived[uint64(i)] == allow; {
		case felt && first < 0:
			first = i
		case !felt && first >= 0 && at.After(answered):
			return 0, 0, fmt.Errorf("packet %d, sent %v after the gate's answer, did not feel the change", i, at.Sub(answered))
		case !felt:
			first = -1 // one packet may be lost
		}
	}
	if first < 0 {
		return 0, 0, fmt.Errorf("none of %d packets felt it", len(s.sent))
	}
	return written, s.sent[first].Sub(begin), nil
}

// enlarge makes room for all packets that may arrive before they are counted.
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

// sender sends packets with their numbers, each from a port of its own, so that
// no connection that is tracked already lets it pass.
type sender struct {
	to    netip.AddrPort
	port  int           // of the next
	ready chan struct{} // closed after the first
	stop  atomic.Bool
	count atomic.Int64
	done  chan error
	sent  []time.Time
}

func (s *sender) run(from *lab.Pod) {
	s.done <- from.Do(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		to := &unix.SockaddrInet4{Addr: s.to.Addr().As4(), Port: int(s.to.Port())}
		pause := unix.NsecToTimespec(int64(probeEvery))
		for !s.stop.Load() {
			at := time.Now()
			if err := send(s.port, to, uint64(len(s.sent))); err != nil {
				return err
			}
			if s.port++; s.port == probeTo {
				s.port = probeFrom
			}
			s.count.Add(1)
			if s.sent = append(s.sent, at); len(s.sent) == 1 {
				close(s.ready)
			}
			if err := unix.Nanosleep(&pause, nil); err != nil && !errors.Is(err, unix.EINTR) {
				return os.NewSyscallError("nanosleep", err)
			}
		}
		return nil
	})
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
