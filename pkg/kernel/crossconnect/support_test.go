// SPDX-License-Identifier: Apache-2.0

package crossconnect

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
)

// talk sends a datagram from one pod to another, until it arrives.
func talk(t *testing.T, clientNS *os.File, client netip.Addr, serverNS *os.File, server netip.Addr) {
	t.Helper()
	listen := func(ns *os.File, a netip.Addr) (conn *net.UDPConn) {
		netns.Within(t, ns, func() {
			var err error
			if conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9999))); err != nil {
				t.Error(err)
			}
		})
		return conn
	}
	from, to := listen(clientNS, client), listen(serverNS, server)
	if from == nil || to == nil {
		return
	}
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 100)
	for deadline := time.Now().Add(eventually.Limit); time.Now().Before(deadline); {
		if _, err := from.WriteToUDPAddrPort([]byte("hello"), netip.AddrPortFrom(server, 9999)); err != nil {
			t.Error(err)
		}
		if err := to.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Error(err)
		}
		if n, sender, err := to.ReadFromUDPAddrPort(buf); err == nil {
			if string(buf[:n]) != "hello" || sender.Addr().Unmap() != client {
				t.Errorf("%q from %v", buf[:n], sender)
			}
			return
		}
	}
	t.Errorf("nothing of %v arrived at %v", client, server)
}
