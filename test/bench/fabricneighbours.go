// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/calico-go/calico/test/lab"
)

// neighbours are many hosts' BGP speakers, all in this process: each has an address of its own on one host of the lab,
// waits there to be connected to, and announces prefixes. All that they cost is this process's.
type neighbours struct {
	listener net.Listener
	all      map[netip.Addr]*neighbour
	tasks    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	broken []error // sessions that ended
}

// neighbour is one of them.
type neighbour struct {
	addr netip.Addr

	mu       sync.Mutex
	prefixes map[netip.Prefix]bool
	conn     net.Conn // the latest; nil = nobody has connected
	up       bool     // it has a session
}

// startNeighbours has them listen on a host that runs nothing else.
func startNeighbours(h *lab.Host, addrs []netip.Addr) (*neighbours, error) {
	all := &neighbours{all: map[netip.Addr]*neighbour{}}
	err := h.Do(func() (err error) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, a := range addrs {
			all.all[a] = &neighbour{addr: a, prefixes: map[netip.Prefix]bool{}}
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
				return fmt.Errorf("add %s: %w", a, err)
			}
		}
		all.listener, err = net.Listen("tcp4", ":179")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("neighbours on host %s: %w", h.Name(), err)
	}
	all.tasks.Go(all.accept)
	return all, nil
}

// accept gives each connection to the neighbour whose address was called.
func (all *neighbours) accept() {
	for {
		conn, err := all.listener.Accept()
		if err != nil {
			all.note(fmt.Errorf("accept a session: %w", err))
			return
		}
		all.tasks.Go(func() {
			n := all.all[conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr()]
			if n == nil || !all.take(n, conn) {
				_ = conn.Close() // nothing was said
				return
			}
			if err := n.session(conn); err != nil {
				all.note(fmt.Errorf("session of %s: %w", n.addr, err))
			}
		})
	}
}

// take makes a connection a neighbour's, unless all is over.
func (all *neighbours) take(n *neighbour, conn net.Conn) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if !all.closed {
		n.mu.Lock()
		n.conn, n.up = conn, false
		n.mu.Unlock()
	}
	return !all.closed
}

func (all *neighbours) note(err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if !all.closed {
		all.broken = append(all.broken, err)
	}
}

// up counts the sessions, and says which have ended so far.
func (all *neighbours) up() (count int, broken error) {
	for _, n := range all.all {
		n.mu.Lock()
		if n.up {
			count++
		}
		n.mu.Unlock()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return count, errors.Join(all.broken...)
}

// close ends all sessions.
func (all *neighbours) close() error {
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	err := all.listener.Close()
	for _, n := range all.all {
		n.mu.Lock()
		if n.conn != nil {
			_ = n.conn.Close() // nobody waits for what was said
		}
		n.mu.Unlock()
	}
	all.tasks.Wait()
	return err
}

// session speaks with who has connected until one of both ends it (RFC 4271, section 8).
func (n *neighbour) session(conn net.Conn) error {
	defer n.end(conn)
	buffer := make([]byte, bgpMost)
	if err := n.expect(conn, buffer, bgpOpen); err != nil {
		return err
	}
	if _, err := conn.Write(append(openOf(n.addr), bgpMessage(bgpKeepalive, nil)...)); err != nil {
		return err
	}
	if err := n.expect(conn, buffer, bgpKeepalive); err != nil {
		return err
	}
	if err := n.begin(conn); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go n.keepAlive(conn, ended)
	for {
		kind, body, err := n.read(conn, buffer)
		switch {
		case err != nil:
			return err
		case kind == bgpNotification:
			return fmt.Errorf("it ended the session: % x", body)
		}
	}
}

// read reads a message; silence for the hold time is an error.
func (n *neighbour) read(conn net.Conn, buffer []byte) (byte, []byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(bgpHold * time.Second)); err != nil {
		return 0, nil, err
	}
	return readBGP(conn, buffer)
}

func (n *neighbour) expect(conn net.Conn, buffer []byte, want byte) error {
	kind, body, err := n.read(conn, buffer)
	if err == nil && kind != want {
		err = fmt.Errorf("it sent a message of type %d where one of type %d is due: % x", kind, want, body)
	}
	return err
}

// begin says all that the neighbour has, and that this is all.
func (n *neighbour) begin(conn net.Conn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up = n.conn == conn
	var said []byte
	if len(n.prefixes) > 0 {
		said = announcement(n.addr, slices.Collect(maps.Keys(n.prefixes))...)
	}
	_, err := conn.Write(append(said, withdrawal()...))
	return err
}

func (n *neighbour) end(conn net.Conn) {
	_ = conn.Close() // what was lost with it has been read as an error
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn == conn {
		n.conn, n.up = nil, false
	}
}

// keepAlive says that the neighbour lives, all the time that hosts leave for it by default, less the jitter of
// RFC 4271, section 10.
func (n *neighbour) keepAlive(conn net.Conn, ended <-chan struct{}) {
	const every = bgpHold / 3 * time.Second
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		timer.Reset(every*3/4 + rand.N(every/4))
		select {
		case <-ended:
			return
		case <-timer.C:
		}
		n.mu.Lock()
		_, err := conn.Write(bgpMessage(bgpKeepalive, nil))
		n.mu.Unlock()
		if err != nil {
			_ = conn.Close() // who reads from it says so
			return
		}
	}
}

// set has the neighbour announce a prefix, or no longer.
func (n *neighbour) set(p netip.Prefix, there bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.prefixes[p] == there {
		return nil
	}
	said := withdrawal(p)
	if delete(n.prefixes, p); there {
		n.prefixes[p], said = true, announcement(n.addr, p)
	}
	if !n.up {
		return nil // it is said when there is a session
	}
	if _, err := n.conn.Write(said); err != nil {
		return fmt.Errorf("neighbour %s: %w", n.addr, err)
	}
	return nil
}
