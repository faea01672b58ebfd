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
)

// Target is what can be pinged: a *Pod, a *Host, an Address.
type Target interface {
	// Addrs must all answer.
	Addrs() []netip.Addr
}

// Address is a target by its address alone.
type Address netip.Addr

// Addrs is the one address.
func (a Address) Addrs() []netip.Addr { return []netip.Addr{netip.Addr(a)} }

// pingPatience is how long a ping goes on where ctx has no deadline, and
// pingInterval how long it waits for each answer.
const (
	pingPatience = 5 * time.Second
	pingInterval = 250 * time.Millisecond
)

// Ping sends echo requests from the pod to every address of the target until
// each has answered once.
func (p *Pod) Ping(ctx context.Context, target Target) error {
	if err := pingAll(ctx, p.ns, target); err != nil {
		return fmt.Errorf("from pod %s: %w", p.rec.Name, err)
	}
	return nil
}

// Ping is Pod.Ping from the host.
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

// Ping sends echo requests from the namespace until one is answered, and
// returns how long that one's answer took.
func (n Namespace) Ping(ctx context.Context, to netip.Addr) (time.Duration, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pingPatience)
		defer cancel()
	}
	network, local := "ip4:icmp", "0.0.0.0"
	if to.Is6() {
		network, local = "ip6:ipv6-icmp", "::"
	}
	var conn *icmp.PacketConn
	err := n.Do(func() (err error) {
		conn, err = icmp.ListenPacket(network, local)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ping %s: %w", to, err)
	}
	defer conn.Close()
	id := rand.IntN(1 << 16)
	var last error
	for seq := 1; ctx.Err() == nil; seq++ {
		took, err := echo(ctx, conn, to, id, seq)
		if err == nil {
			return took, nil
		}
		last = err
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			// Refused at once, as while there is no route: not a busy loop.
			select {
			case <-ctx.Done():
			case <-time.After(pingInterval / 5):
			}
		}
	}
	if last == nil || errors.Is(last, os.ErrDeadlineExceeded) {
		last = ctx.Err() // nothing came, which is not worth the words of the socket
	}
	return 0, fmt.Errorf("ping %s: no answer: %w", to, last)
}

// echo sends one request and waits for its reply.
func echo(ctx context.Context, conn *icmp.PacketConn, to netip.Addr, id, seq int) (time.Duration, error) {
	request := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: seq, Data: []byte("calico-lab")}}
	want, protocol := icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if to.Is6() {
		request.Type, want, protocol = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	packet, err := request.Marshal(nil) // the kernel fills in ICMPv6's checksum
	if err != nil {
		return 0, err
	}
	start := time.Now()
	deadline := start.Add(pingInterval)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if _, err := conn.WriteTo(packet, &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()}); err != nil {
		return 0, err
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return 0, err
		}
		reply, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || reply.Type != want {
			continue // a raw socket sees all that arrives
		}
		if e, ok := reply.Body.(*icmp.Echo); ok && e.ID == id && e.Seq == seq {
			return time.Since(start), nil
		}
	}
}
