// SPDX-License-Identifier: Apache-2.0

// Package nfnl speaks nfnetlink with the kernel about one table of nftables: changes it,
// reads it, and hears when somebody else changes it.
//
// github.com/google/nftables encodes the expressions of rules here, and could commit a batch
// for one generation of the ruleset (FlushWithGenID). It can't cut a batch into several
// transactions, find single elements of a set, read rules without decoding all of their
// expressions, or tell who made a change: that is what this package is for.
package nfnl

import (
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	receiveBuffer = 8 << 20
	answerTimeout = 30 * time.Second
)

// ErrInterrupted says that some ruleset changed while it was read, and it isn't known what of it.
var ErrInterrupted = errors.New("the ruleset changed while it was read")

// Conn talks to the kernel of one table. It is good for one goroutine at a time, but for Listen.
type Conn struct {
	table string
	sock  *netlink.Conn
	// most is how large a batch may be where buffers can't be made larger, 0 = as
	// the kernel says.
	most int
}

// Open opens the nftables of the calling thread's network namespace, for the table of
// family inet that is named.
func Open(name string) (*Conn, error) {
	sock, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	c := &Conn{table: name, sock: sock}
	if err := c.enlargeAnswers(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	if _, err := c.Generation(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("open nftables (the kernel needs nf_tables, and this process CAP_NET_ADMIN): %w", err)
	}
	_ = sock.SetReadBuffer(receiveBuffer) // or as large as is allowed
	// An error repeats what it is about only up to the header: the batch is large.
	if err := sock.SetOption(netlink.CapAcknowledge, true); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return c, nil
}

// enlargeAnswers has the kernel make answers of up to 32 KiB. Until somebody receives with so much
// room (the netlink package begins with a page) it ends a dump at the first rule that is larger, as if there were no more: see
// netlink_dump and netlink_recvmsg in net/netlink/af_netlink.c.
func (c *Conn) enlargeAnswers() error {
	if _, err := c.sock.Send(message(unix.NFT_MSG_GETGEN, 0)); err != nil {
		return err
	}
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return err
	}
	var received error
	err = raw.Read(func(fd uintptr) bool {
		_, _, received = unix.Recvfrom(int(fd), make([]byte, 32<<10), 0)
		return !errors.Is(received, unix.EAGAIN)
	})
	return errors.Join(err, received)
}

// Close closes the socket. The table stays.
func (c *Conn) Close() error { return c.sock.Close() }

// message is one to nftables, without its attributes.
func message(kind int, flags netlink.HeaderFlags) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   []byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0},
	}
}

// familySize is that of nfgenmsg, which attributes follow: family, version, resource.
const familySize = 4

// attributes are those of an answer.
func attributes(m netlink.Message) []byte {
	return m.Data[min(familySize, len(m.Data)):]
}

// ask sends one request, for a dump or for one answer.
func (c *Conn) ask(kind int, flags netlink.HeaderFlags, body []byte, fn func(body []byte)) error {
	m := message(kind, flags)
	m.Data = append(m.Data, body...)
	if err := c.sock.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	answers, err := c.sock.Execute(m)
	switch {
	case errors.Is(err, unix.EINTR):
		return ErrInterrupted
	case err != nil:
		return err
	}
	for _, a := range answers {
		if a.Header.Flags&netlink.DumpInterrupted != 0 {
			return ErrInterrupted
		}
		fn(attributes(a))
	}
	return nil
}

// Generation is the number of all rulesets together, which grows with every transaction of
// anybody's.
func (c *Conn) Generation() (uint32, error) {
	g := uint32(0)
	if err := c.ask(unix.NFT_MSG_GETGEN, 0, nil, func(body []byte) { g = uint32(number(attr(body, unix.NFTA_GEN_ID))) }); err != nil {
		return 0, fmt.Errorf("read the generation of the ruleset: %w", err)
	}
	return g, nil
}

// named is the beginning of a request about something in the table.
func (c *Conn) named(name string) []byte {
	b := appendString(nil, attrTable, c.table)
	if name != "" {
		b = appendString(b, attrName, name)
	}
	return b
}
