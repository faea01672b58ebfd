// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/inflight"
)

// Target can be pinged: a *Pod, a *Host, an Address.
type Target interface {
	// Addrs returns the addresses, all of which must answer.
	Addrs() []netip.Addr
}

// Address is a target that is just an address.
type Address netip.Addr

// Addrs returns the address.
func (a Address) Addrs() []netip.Addr { return []netip.Addr{netip.Addr(a)} }

// pingPatience is how long a ping continues if ctx has no deadline, and pingInterval how long it waits for an answer
// before it sends another request.
const (
	pingPatience = 5 * time.Second
	pingInterval = 250 * time.Millisecond
)

// Ping sends echo requests from the pod to every address of the target until each has answered once.
func (p *Pod) Ping(ctx context.Context, target Target) error {
	if err := pingAll(ctx, p.ns, target); err != nil {
		return fmt.Errorf("from pod %s: %w", p.rec.Name, err)
	}
	return nil
}

// Ping is like Pod.Ping but from the host.
func (h *Host) Ping(ctx context.Context, target Target) error {
	if err := pingAll(ctx, h.ns, target); err != nil {
		return fmt.Errorf("from host %s: %w", h.name, err)
	}
	return nil
}

func pingAll(ctx context.Context, ns Namespace, target Target) error {
	addrs := target.Addrs()
	if len(addrs) == 0 {
		return errors.New("ping: the target has no address")
	}
	for _, a := range addrs {
		if _, err := ns.Ping(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Ping sends echo requests from the namespace until one is answered, and returns how long that answer took.
func (n Namespace) Ping(ctx context.Context, to netip.Addr) (time.Duration, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pingPatience)
		defer cancel()
	}
	session, err := n.echoes(to)
	if err != nil {
		return 0, fmt.Errorf("ping %s: %w", to, err)
	}
	defer session.conn.Close()
	var last error
	for ctx.Err() == nil {
		took, err := session.ask(ctx)
		if err == nil {
			return took, nil
		}
		last = err
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			// Refused at once, as without a route: avoid a busy loop.
			select {
			case <-ctx.Done():
			case <-time.After(pingInterval / 5):
			}
		}
	}
	if last == nil || errors.Is(last, os.ErrDeadlineExceeded) {
		last = ctx.Err() // nothing was received; the socket's own error adds nothing
	}
	return 0, fmt.Errorf("ping %s: no answer: %w", to, last)
}

// Answers sends one echo request from the namespace and reports whether there is an answer. That there is none isn't
// decided by time: the namespace's own answer comes first, to a request that it sends to itself once nothing is in
// flight.
func (n Namespace) Answers(to netip.Addr) (bool, error) {
	session, err := n.echoes(to)
	if err != nil {
		return false, fmt.Errorf("ping %s: %w", to, err)
	}
	defer session.conn.Close()
	self := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if to.Is6() {
		self = netip.IPv6Loopback()
	}
	if err := session.conn.SetDeadline(time.Now().Add(eventually.Limit)); err != nil {
		return false, err
	}
	_ = session.send(to) // what can't be sent isn't answered
	if err := n.Do(inflight.Wait); err != nil {
		return false, err
	}
	if err := session.send(self); err != nil {
		return false, fmt.Errorf("ping %s: %w", self, err)
	}
	seq, err := session.receive()
	return seq == 1, err
}

// Connects reports in the same way whether a TCP connection is established without retransmissions.
func (n Namespace) Connects(to netip.AddrPort) (made bool, err error) {
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())})
	if to.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	err = n.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(fd)
		_ = unix.Connect(fd, address) // it continues, or the firewall of its own host dropped it
		if err := inflight.Wait(); err != nil {
			return err
		}
		_, err = unix.Getpeername(fd)
		made = err == nil
		return nil
	})
	return made, err
}

// echoes are the requests of one ping.
type echoes struct {
	conn *icmp.PacketConn
	to   netip.Addr
	id   int
	sent map[int]time.Time // by sequence number
}

func (n Namespace) echoes(to netip.Addr) (s *echoes, err error) {
	network, local := "ip4:icmp", "0.0.0.0"
	if to.Is6() {
		network, local = "ip6:ipv6-icmp", "::"
	}
	s = &echoes{to: to, id: rand.IntN(1 << 16), sent: map[int]time.Time{}}
	err = n.Do(func() (err error) {
		s.conn, err = icmp.ListenPacket(network, local)
		return err
	})
	return s, err
}

// ask sends one more request and waits for the reply to it or an earlier one, which may be late on a busy machine.
func (s *echoes) ask(ctx context.Context) (time.Duration, error) {
	deadline := time.Now().Add(pingInterval)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := s.conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if err := s.send(s.to); err != nil {
		return 0, err
	}
	seq, err := s.receive()
	return time.Since(s.sent[seq]), err
}

func (s *echoes) send(to netip.Addr) error {
	seq := len(s.sent) + 1
	request := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: s.id, Seq: seq, Data: []byte("calico-lab")}}
	if to.Is6() {
		request.Type = ipv6.ICMPTypeEchoRequest
	}
	packet, err := request.Marshal(nil) // the kernel fills in ICMPv6's checksum
	if err != nil {
		return err
	}
	s.sent[seq] = time.Now()
	_, err = s.conn.WriteTo(packet, &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()})
	return err
}

// receive returns the sequence number of the next request that is answered.
func (s *echoes) receive() (seq int, err error) {
	want, protocol := icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if s.to.Is6() {
		want, protocol = ipv6.ICMPTypeEchoReply, 58
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return 0, err
		}
		reply, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || reply.Type != want {
			continue // a raw socket sees everything that arrives
		}
		if e, ok := reply.Body.(*icmp.Echo); ok && e.ID == s.id && !s.sent[e.Seq].IsZero() {
			return e.Seq, nil
		}
	}
}
