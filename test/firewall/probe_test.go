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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/test/eventually"
)

// silence is how long what must not come is waited for. On the way there is
// nothing that takes time: the packet is there when the call that sends it
// returns, or soon after.
const silence = 50 * time.Millisecond

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
	wait := silence
	if e.passes {
		wait = eventually.Limit / 4
	}
	protocol, text, _ := strings.Cut(e.what, " ")
	port, _ := strconv.Atoi(text)
	var err error
	switch protocol {
	case "udp":
		err = sendUDP(e.from, e.to, netip.AddrPortFrom(to, uint16(port)), wait)
	case "tcp":
		err = dialTCP(e.from, e.to, netip.AddrPortFrom(to, uint16(port)), wait)
	case "ping":
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		_, err = e.from.ns.Ping(ctx, to)
		cancel()
	default:
		r.Fatalf("probe %q", e.what)
	}
	switch {
	case e.passes && err != nil:
		r.Errorf("%s: %s from %s to %s (%s) does not pass: %v", when, e.what, e.from.name, e.to.name, to, err)
	case !e.passes && err == nil:
		r.Errorf("%s: %s from %s to %s (%s) passes", when, e.what, e.from.name, e.to.name, to)
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
func bound(at *place, bind func() error) error {
	for deadline := time.Now().Add(eventually.Limit); ; {
		err := at.ns.Do(bind)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func dialUDP(at *place, to netip.AddrPort) (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := at.ns.Do(func() (err error) {
		conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	return conn, err
}

// sendUDP sends one datagram and waits for it at the other end.
func sendUDP(from, at *place, to netip.AddrPort, wait time.Duration) error {
	_, err := sendUDPFrom(from, at, to, wait)
	return err
}

// sendUDPFrom also says which source it came from.
func sendUDPFrom(from, at *place, to netip.AddrPort, wait time.Duration) (netip.AddrPort, error) {
	sink, err := listenUDP(at, to.Port())
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer sink.Close()
	conn, err := dialUDP(from, to)
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer conn.Close()
	token := rand.Text()
	if _, err := conn.Write([]byte(token)); err != nil {
		return netip.AddrPort{}, err
	}
	if err := sink.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return netip.AddrPort{}, err
	}
	buf := make([]byte, 1500)
	for {
		n, source, err := sink.ReadFromUDPAddrPort(buf)
		if err != nil {
			return netip.AddrPort{}, err
		}
		if string(buf[:n]) == token {
			return netip.AddrPortFrom(source.Addr().Unmap(), source.Port()), nil
		}
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
func dialTCP(from, at *place, to netip.AddrPort, wait time.Duration) error {
	l, err := listenTCP(at, to.Port())
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := connect(from, to, wait)
	if err == nil {
		err = conn.Close()
	}
	return err
}

func connect(from *place, to netip.AddrPort, wait time.Duration) (net.Conn, error) {
	var conn net.Conn
	err := from.ns.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", to.String(), wait)
		return err
	})
	return conn, err
}
