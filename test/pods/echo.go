// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

// Echo sends one datagram from a namespace to an address in another and waits
// for its return. Nothing is sent twice: neighbours are found at once or it
// fails.
func Echo(tb testing.TB, from, to *pod.Namespace, addr netip.Addr) {
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
	_ = client.SetReadDeadline(time.Now().Add(eventually.Limit))
	b := make([]byte, 64)
	if n, err := client.Read(b); err != nil || string(b[:n]) != "hello" {
		tb.Errorf("echo by %s: %q, %v", addr, b[:n], err)
	}
}
