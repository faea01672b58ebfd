// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/test/netns"
)

// echo sends one datagram from a namespace to an address in another and waits
// for its return. Nothing is sent twice: neighbours are found at once or it
// fails.
func echo(tb testing.TB, from, to *Namespace, addr netip.Addr) {
	tb.Helper()
	network := "udp4"
	if addr.Is6() {
		network = "udp6"
	}
	var server *net.UDPConn
	err := to.Enter(func() error {
		var err error
		server, err = net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	if err != nil {
		tb.Error(err)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64)
		if n, peer, err := server.ReadFromUDPAddrPort(b); err == nil {
			_, _ = server.WriteToUDPAddrPort(b[:n], peer)
		}
	}()
	defer func() {
		_ = server.Close()
		<-done
	}()
	start := time.Now()
	var client *net.UDPConn
	err = from.Enter(func() error {
		var err error
		client, err = net.DialUDP(network, nil, server.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		tb.Error(err)
		return
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Write([]byte("hello")); err != nil {
		tb.Error(err)
		return
	}
	_ = client.SetReadDeadline(start.Add(netns.Patience))
	b := make([]byte, 64)
	if n, err := client.Read(b); err != nil || string(b[:n]) != "hello" {
		tb.Errorf("echo by %s: %q, %v", addr, b[:n], err)
		return
	}
	tb.Logf("echo by %s took %s", addr, time.Since(start))
}

func TestPodsTalk(t *testing.T) {
	for _, defaultRoute := range []bool{false, true} {
		t.Run(fmt.Sprintf("host's default route %v", defaultRoute), func(t *testing.T) {
			netns.Host(t, func() {
				if defaultRoute {
					netns.IP(t, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
					netns.IP(t, "link", "set", "up0", "up")
					netns.IP(t, "link", "set", "up1", "up")
					netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "up0")
					netns.IP(t, "route", "add", "default", "via", "192.0.2.254")
				}
				h := newHostPath(t)
				a, b := wire(t, 1), wire(t, 2)
				mustApply(t, h, a.endpoint, b.endpoint)
				for i := range 2 {
					echo(t, a.ns, b.ns, b.endpoint.Addrs[i])
					echo(t, b.ns, a.ns, a.endpoint.Addrs[i])
				}
				again := mustApply(t, h, a.endpoint, b.endpoint)
				if again.Writes != 0 || again.Repairs != 0 {
					t.Errorf("a second Apply made %d writes, %d repairs", again.Writes, again.Repairs)
				}
			})
		})
	}
}
