// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// linkLocal is the link-local address of an interface at a place.
func (r *rig) linkLocal(at *place, name string) (a netip.Addr) {
	r.Helper()
	r.until("a link-local address of "+name, func() bool {
		for line := range strings.Lines(r.run(at, "ip", "-6", "-o", "addr", "show", "dev", name, "scope", "link", "-tentative")) {
			if _, rest, ok := strings.Cut(line, " inet6 "); ok {
				text, _, _ := strings.Cut(rest, "/")
				a = netip.MustParseAddr(text)
				return true
			}
		}
		return false
	})
	return a
}

// tick has whoever connects get a byte each few milliseconds, and sends nothing back.
func (r *rig) tick(at *place, port uint16) {
	r.Helper()
	listener, err := listenTCP(at, port)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				for err == nil {
					_, err = c.Write([]byte("x"))
					time.Sleep(5 * time.Millisecond)
				}
			}()
		}
	}()
}

// ticks says whether so many bytes come, each within a time.
func ticks(c net.Conn, n int, within time.Duration) error {
	for range n {
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return err
		}
	}
	return nil
}

// TestCutLinkLocal has connections over link-local addresses of two interfaces of
// the host, of which one comes to be closed.
func TestCutLinkLocal(t *testing.T) {
	r := newRig(t)
	r.pod("witness")
	r.run(r.self, "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "lan1", "netns", r.outside.ns.Path())
	r.run(r.self, "ip", "link", "set", "eth1", "up")
	r.run(r.outside, "ip", "link", "set", "lan1", "up")
	r.tick(r.self, 8080)
	route := r.run(r.outside, "ip", "-6", "-o", "route", "get", r.self.addrs[1].String())
	_, rest, _ := strings.Cut(route, " dev ")
	conns := map[string]net.Conn{}
	for name, far := range map[string]string{"eth0": strings.Fields(rest)[0], "eth1": "lan1"} {
		r.linkLocal(r.outside, far)
		c, err := connect(r.outside, netip.AddrPortFrom(r.linkLocal(r.self, name).WithZone(far), 8080), patience)
		if err == nil {
			defer c.Close()
			err = ticks(c, 10, patience)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		conns[name] = c
	}
	r.policy("closed", `{"selector": "kind == 'uplink'", "inbound_rules": [{"action": "deny"}], "outbound_rules": [{"action": "allow"}]}`)
	r.put(hostPath("uplink"), `{"name": "eth0", "labels": {"kind": "uplink"}}`)
	r.enforced()
	r.until("a connection is cut", func() bool { return r.metric("calico_node_connections_cut_total") > 0 })
	if err := ticks(conns["eth0"], 1000, time.Second); err == nil {
		t.Error("over eth0, which is closed, it goes on")
	}
	if err := ticks(conns["eth1"], 1000, patience/4); err != nil {
		t.Errorf("over eth1, which is not a host endpoint: %v", err)
	}
}

// TestCutFailsafe has a connection cut that the host began from its port 22: the
// other side can still call that port from the one that it had.
func TestCutFailsafe(t *testing.T) {
	r := newRig(t)
	r.pod("witness")
	from := func(at *place, local, to netip.AddrPort) (conn net.Conn, err error) {
		d := net.Dialer{Timeout: patience / 4, LocalAddr: net.TCPAddrFromAddrPort(local), Control: func(_, _ string, c syscall.RawConn) (err error) {
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
