// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

// stream is traffic in one direction that goes on until the test is over.
type stream struct {
	name          string
	sent, arrived atomic.Int64
	resting       atomic.Bool // nothing is sent
	ended         chan struct{}
	working       sync.WaitGroup
	closers       []io.Closer

	mu     sync.Mutex
	passed []int64 // the numbers of what arrived and must not
	since  int64   // that of the last one that doesn't count
}

const (
	// pace is the pause between two packets of a stream.
	pace = time.Millisecond
	// resent is how long TCP may take to send again after an outage (TCP_RTO_MAX,
	// two minutes), and some.
	resent = 3 * time.Minute
)

func (r *rig) stream(name string) *stream {
	s := &stream{name: name, ended: make(chan struct{})}
	r.Cleanup(s.end)
	return s
}

func (s *stream) end() {
	select {
	case <-s.ended:
		return
	default:
	}
	close(s.ended)
	for _, c := range s.closers {
		_ = c.Close() // it ends what reads or writes
	}
	s.working.Wait()
}

// send calls fn at the pace of a stream, with numbers that go up.
func (s *stream) send(fn func(n int64) error) {
	s.working.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-s.ended:
				return
			case <-tick.C:
			}
			if s.resting.Load() {
				continue
			}
			// What the firewall drops on its own host is an error here.
			if err := fn(s.sent.Add(1)); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	})
}

// receive counts what fn returns until the stream ends.
func (s *stream) receive(fn func() (int64, error)) {
	s.working.Go(func() {
		for {
			n, err := fn()
			if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
				return
			}
			if err == nil && n > 0 {
				s.arrived.Add(n)
			}
			select {
			case <-s.ended:
				return
			default:
			}
		}
	})
}

// complete stops sending and waits for what is under way. It returns how many never arrived.
func (r *rig) complete(s *stream) (lost int64) {
	s.resting.Store(true)
	ctx, cancel := context.WithTimeout(r.Context(), resent)
	defer cancel()
	_ = eventually.Wait(ctx, s.name, eventually.Holds(func() bool { // lost says it
		lost = s.sent.Load() - s.arrived.Load() // less while a block is sent that is not counted yet
		return lost == 0
	}))
	return lost
}

// flows waits until more arrives.
func (r *rig) flows(when string, streams ...*stream) {
	r.Helper()
	for _, s := range streams {
		before := s.arrived.Load()
		eventually.Within(r, resent, when+": "+s.name, eventually.Holds(func() bool { return s.arrived.Load() > before+3 }))
	}
}

// pings sends echo requests, each a connection of its own, and counts the answers.
func (r *rig) pings(from *place, to netip.Addr) *stream { return r.pinging(from, to, true) }

// ping sends echo requests of one connection.
func (r *rig) ping(from *place, to netip.Addr) *stream { return r.pinging(from, to, false) }

func (r *rig) pinging(from *place, to netip.Addr, each bool) *stream {
	r.Helper()
	s := r.stream(fmt.Sprintf("ping from %s to %s", from.name, to))
	network, local := "ip4:icmp", "0.0.0.0"
	request, want, protocol := icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if to.Is6() {
		network, local = "ip6:ipv6-icmp", "::"
		request, want, protocol = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	var conn net.PacketConn
	err := from.ns.Do(func() (err error) {
		conn, err = net.ListenPacket(network, local)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	r.roomy(conn.(*net.IPConn))
	s.closers = append(s.closers, conn)
	magic := "stream " + to.String()
	s.receive(func() (int64, error) {
		buf := make([]byte, 1500)
		n, peer, err := conn.ReadFrom(buf)
		if err != nil {
			return 0, err
		}
		m, err := icmp.ParseMessage(protocol, buf[:n])
		if err != nil || m.Type != want || peer.String() != to.String() {
			return 0, nil
		}
		if e, ok := m.Body.(*icmp.Echo); ok && string(e.Data) == magic {
			return 1, nil
		}
		return 0, nil
	})
	s.send(func(n int64) error {
		id := 0x5ca1
		if each {
			id = int(n & 0xffff)
		}
		m := icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: int(n & 0xffff), Data: []byte(magic)}}
		b, err := m.Marshal(nil)
		if err == nil {
			_, err = conn.WriteTo(b, &net.IPAddr{IP: to.AsSlice()})
		}
		return err
	})
	return s
}

// datagrams are one UDP connection that both sides send in.
func (r *rig) datagrams(from, at *place, to netip.AddrPort) (up, down *stream) {
	r.Helper()
	up, down = r.stream(fmt.Sprintf("UDP from %s to %s", from.name, to)), r.stream(fmt.Sprintf("UDP from %s back to %s", to, from.name))
	local := netip.AddrPortFrom(to.Addr(), to.Port())
	if !slices.Contains(at.addrs[:], to.Addr()) { // it is translated on its way
		local = netip.AddrPortFrom(at.addrs[0], to.Port())
		if to.Addr().Is6() {
			local = netip.AddrPortFrom(at.addrs[1], to.Port())
		}
	}
	var server *net.UDPConn
	err := bound(at, func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	client, err := dialUDP(from, to)
	if err != nil {
		r.Fatal(err)
	}
	r.roomy(server, client)
	up.closers, down.closers = []io.Closer{server}, []io.Closer{client}
	buf := make([]byte, 64)
	known := make(chan netip.AddrPort, 1)
	up.receive(func() (int64, error) {
		_, source, err := server.ReadFromUDPAddrPort(buf)
		if err != nil {
			return 0, err
		}
		select {
		case known <- source:
		default: // known already
		}
		return 1, nil
	})
	up.send(func(n int64) error {
		_, err := client.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
		return err
	})
	peer := eventually.Receive(r, up.name, known)
	back := make([]byte, 64)
	down.receive(func() (int64, error) {
		if _, err := client.Read(back); err != nil {
			return 0, err
		}
		return 1, nil
	})
	down.send(func(n int64) error {
		_, err := server.WriteToUDPAddrPort(binary.BigEndian.AppendUint64(nil, uint64(n)), peer)
		return err
	})
	return up, down
}

// roomy gives sockets room for seconds of a stream.
func (r *rig) roomy(conns ...syscall.Conn) {
	r.Helper()
	if err := lab.GiveRoom(conns...); err != nil {
		r.Fatal(err)
	}
}
