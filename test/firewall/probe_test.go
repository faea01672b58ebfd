// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/inflight"
)

// command1 runs a command at a place.
func command1(ctx context.Context, at *place, command string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := at.ns.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s at %s: %s %s: %w: %s", command, at.name, command, strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// expect is what becomes of packets from one place to another.
type expect struct {
	from, to *place
	what     string // "udp 53", "tcp 80", "ping"
	passes   bool
}

// probe sends what each line says, over both families.
func (r *rig) probe(when string, lines ...expect) {
	r.Helper()
	for _, e := range lines {
		for _, to := range e.to.addrs {
			r.probeOne(when, e, to)
		}
	}
}

func (r *rig) probeOne(when string, e expect, to netip.Addr) {
	r.Helper()
	protocol, text, _ := strings.Cut(e.what, " ")
	port, _ := strconv.Atoi(text)
	target := netip.AddrPortFrom(to, uint16(port))
	passes := true
	var err error
	switch {
	case protocol == "udp" && e.passes:
		_, err = sendUDP(e.from, e.to, target)
	case protocol == "udp":
		passes, err = udpPasses(e.from, e.to, target)
	case protocol == "tcp" && e.passes:
		err = dialTCP(e.from, e.to, target)
	case protocol == "tcp":
		passes, err = tcpPasses(e.from, e.to, target)
	case protocol == "ping" && e.passes:
		_, err = e.from.ns.Ping(r.ctx(), to)
	case protocol == "ping":
		passes, err = e.from.ns.Answers(to)
	default:
		r.Fatalf("probe %q", e.what)
	}
	if err != nil || passes != e.passes {
		r.Errorf("%s: %s from %s to %s (%s): passes %t, want %t, %v", when, e.what, e.from.name, e.to.name, to, passes && err == nil, e.passes, err)
	}
}

// listenUDP listens at a place, for both families.
func listenUDP(at *place, port uint16) (conn *net.UDPConn, err error) {
	err = bound(at, func() (err error) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		return err
	})
	return conn, err
}

// bound runs what binds a port at a place. A child that is being started holds
// what this process has closed until it becomes another program.
func bound(at *place, bind func() error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	_ = eventually.Wait(ctx, "the port", eventually.Holds(func() bool { // err says it
		err = at.ns.Do(bind)
		return !errors.Is(err, unix.EADDRINUSE)
	}))
	return err
}

func dialUDP(at *place, to netip.AddrPort) (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := at.ns.Do(func() (err error) {
		conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	return conn, err
}

// sendUDP sends one datagram, waits for it at the other end, and says which source it came from.
func sendUDP(from, at *place, to netip.AddrPort) (source netip.AddrPort, err error) {
	sink, err := listenUDP(at, to.Port())
	if err != nil {
		return source, err
	}
	defer sink.Close()
	conn, err := dialUDP(from, to)
	if err != nil {
		return source, err
	}
	defer conn.Close()
	token := rand.Text()
	if _, err := conn.Write([]byte(token)); err != nil {
		return source, err
	}
	if err := sink.SetReadDeadline(time.Now().Add(eventually.Limit)); err != nil {
		return source, err
	}
	for buf := make([]byte, 100); ; {
		n, source, err := sink.ReadFromUDPAddrPort(buf)
		if err != nil || string(buf[:n]) == token {
			return netip.AddrPortFrom(source.Addr().Unmap(), source.Port()), err
		}
	}
}

// udpPasses says whether a datagram arrives.
func udpPasses(from, at *place, to netip.AddrPort) (bool, error) {
	sink, err := listenUDP(at, to.Port())
	if err != nil {
		return false, err
	}
	defer sink.Close()
	conn, err := dialUDP(from, to)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	token := rand.Text()
	_, _ = conn.Write([]byte(token)) // what the firewall drops on its own host is an error
	texts, err := arrived(at, sink)
	return slices.Contains(texts, token), err
}

// arrived are the datagrams at a socket, when none is on its way to it any more: before one that its own place sends then.
func arrived(at *place, sink *net.UDPConn) (texts []string, err error) {
	if err := inflight.Wait(); err != nil {
		return nil, err
	}
	last, err := dialUDP(at, netip.AddrPortFrom(netip.IPv6Loopback(), sink.LocalAddr().(*net.UDPAddr).AddrPort().Port()))
	if err != nil {
		return nil, err
	}
	defer last.Close()
	end := rand.Text()
	if _, err := last.Write([]byte(end)); err != nil {
		return nil, err
	}
	if err := sink.SetReadDeadline(time.Now().Add(eventually.Limit)); err != nil {
		return nil, err
	}
	for buf := make([]byte, 100); ; {
		n, err := sink.Read(buf)
		if err != nil || string(buf[:n]) == end {
			return texts, err
		}
		texts = append(texts, string(buf[:n]))
	}
}

func listenTCP(at *place, port uint16) (l net.Listener, err error) {
	err = bound(at, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	return l, err
}

// dialTCP connects to a listener that it makes.
func dialTCP(from, at *place, to netip.AddrPort) error {
	l, err := listenTCP(at, to.Port())
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := connect(from, to)
	if err == nil {
		err = conn.Close()
	}
	return err
}

func connect(from *place, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	err := from.ns.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", to.String(), eventually.Limit)
		return err
	})
	return conn, err
}

// tcpPasses says whether a listener that it makes can be connected to, without asking it twice.
func tcpPasses(from, at *place, to netip.AddrPort) (bool, error) {
	l, err := listenTCP(at, to.Port())
	if err != nil {
		return false, err
	}
	defer l.Close()
	return from.ns.Connects(to)
}
