// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
)

// TestCutFailsafe has a connection cut that the host began from its port 22: the
// other side can still call that port from the one that it had.
func TestCutFailsafe(t *testing.T) {
	long.Test(t)
	r := newHostileRig(t)
	r.pod("witness")
	from := func(at *place, local, to netip.AddrPort) (conn net.Conn, err error) {
		d := net.Dialer{Timeout: eventually.Limit, LocalAddr: net.TCPAddrFromAddrPort(local), Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }), err)
		}}
		err = at.ns.Do(func() (err error) {
			conn, err = d.Dial("tcp", to.String())
			return err
		})
		if err == nil {
			err = conn.(*net.TCPConn).SetLinger(0) // its port is free at once
		}
		return conn, err
	}
	ssh, far := netip.AddrPortFrom(r.self.addrs[0], 22), netip.AddrPortFrom(r.outside.addrs[0], 5000)
	l, err := listenTCP(r.outside, far.Port())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := from(r.self, ssh, far)
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	r.put(hostPath("uplink"), `{"name": "eth0"}`)
	r.enforced()
	r.until("the connection is cut", func() bool { return r.metric("calico_node_connections_cut_total") > 0 })
	if err := errors.Join(other.(*net.TCPConn).SetLinger(0), other.Close(), l.Close(), runs.Close()); err != nil {
		t.Fatal(err)
	}
	if l, err = listenTCP(r.self, ssh.Port()); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, port := range []uint16{far.Port() + 1, far.Port()} {
		c, err := from(r.outside, netip.AddrPortFrom(far.Addr(), port), ssh)
		if err != nil {
			t.Errorf("from port %d to the host's port 22: %v", port, err)
			continue
		}
		_ = c.Close()
	}
}
