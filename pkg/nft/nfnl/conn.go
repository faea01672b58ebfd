// SPDX-License-Identifier: Apache-2.0

// Package nfnl speaks nfnetlink with the kernel about one table of nftables: it changes the table, reads it, and listens for others'
// changes.
//
// github.com/google/nftables encodes the expressions of rules here, and could commit a batch for one generation of the ruleset
// (FlushWithGenID). It can't cut a batch into several transactions, find single elements of a set, read rules without decoding all of their
// expressions, or tell who made a change: that is what this package is for.
package nfnl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrInterrupted says that a ruleset changed while it was read; it isn't known which part.
var ErrInterrupted = errors.New("the ruleset changed while it was read")

// Conn talks to the kernel about one table. Except for Listen, it is not safe for concurrent use. The zero value only makes batches that
// can't be sent.
type Conn struct {
	table string
	sock  socket
}

// Open opens the nftables of the calling thread's network namespace, for the table with this name and family inet.
func Open(name string) (*Conn, error) { return OpenFamily(name, unix.NFPROTO_INET) }

// OpenFamily is Open for a table of another family.
func OpenFamily(name string, family byte) (*Conn, error) {
	c := &Conn{table: name, sock: socket{family: family}}
	if err := c.sock.open(); err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	if _, err := c.Generation(); err != nil {
		c.sock.close()
		return nil, fmt.Errorf("open nftables (the kernel needs nf_tables, and this process CAP_NET_ADMIN): %w", err)
	}
	return c, nil
}

// Close closes the socket. The table stays.
func (c *Conn) Close() { c.sock.close() }

// ask sends one request, for a dump or for a single answer.
func (c *Conn) ask(kind int, flags uint16, body []byte, fn func(body []byte)) error {
	r := request{kind: kind, flags: flags, body: body, fn: fn}
	if err := c.sock.exchange([]*request{&r}); err != nil {
		return err
	}
	return r.err
}

// Generation returns the generation of all rulesets together, which grows with every transaction of any program.
func (c *Conn) Generation() (uint32, error) {
	g := uint32(0)
	if err := c.ask(unix.NFT_MSG_GETGEN, 0, nil, func(body []byte) { g = uint32(number(attr(body, unix.NFTA_GEN_ID))) }); err != nil {
		return 0, fmt.Errorf("read the generation of the ruleset: %w", err)
	}
	return g, nil
}

// named begins a request about something in the table.
func (c *Conn) named(name string) []byte {
	b := appendString(nil, attrTable, c.table)
	if name != "" {
		b = appendString(b, attrName, name)
	}
	return b
}
