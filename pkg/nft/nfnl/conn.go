// SPDX-License-Identifier: Apache-2.0

// Package nfnl speaks nfnetlink with the kernel about one table of nftables: changes it,
// reads it, and hears when somebody else changes it.
package nfnl

import "fmt"

// Conn talks to the kernel of one table, by two sockets that ask and one that hears.
// It is good for one goroutine at a time, but for Listen. Of the zero value there is
// nothing to be had but batches, which can't be sent.
type Conn struct {
	sock   socket
	beside socket // reads at the same time
	events *eventSocket
}

// Open opens the nftables of the calling thread's network namespace, for the table of
// family inet that is named.
func Open(name string) (*Conn, error) {
	c := &Conn{sock: socket{table: name}, beside: socket{table: name}}
	if err := c.sock.open(); err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	if _, err := c.Generation(); err != nil {
		c.sock.close()
		return nil, fmt.Errorf("open nftables (the kernel needs nf_tables, and this process CAP_NET_ADMIN): %w", err)
	}
	if err := c.beside.open(); err != nil {
		c.sock.close()
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	events, err := openEvents(c.sock.port, name)
	if err != nil {
		c.sock.close()
		c.beside.close()
		return nil, fmt.Errorf("open nftables events: %w", err)
	}
	c.events, c.sock.events, c.beside.events = events, events, events
	return c, nil
}

// Close closes the sockets. The table stays.
func (c *Conn) Close() error {
	c.sock.close()
	c.beside.close()
	return c.events.close()
}

// Generation is the number of the ruleset, which grows with every transaction of
// anybody's.
func (c *Conn) Generation() (uint32, error) { return c.sock.generation() }
