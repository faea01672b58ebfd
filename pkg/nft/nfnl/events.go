// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const groupNFTables = 7 // NFNLGRP_NFTABLES

// eventSocket hears of changes of the ruleset once it has joined the group.
type eventSocket struct {
	file  *os.File
	fd    int
	own   uint32 // port of the socket that makes our changes
	table string // the name of ours

	mu      sync.Mutex
	running bool          // it has joined the group
	heard   uint32        // generation up to which all was heard
	touched int           // how often somebody else changed our table, or may have
	lost    bool          // the kernel dropped some, and may still do so
	more    chan struct{} // closed when more was heard
}

func openEvents(own uint32, table string) (*eventSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	e := &eventSocket{file: os.NewFile(uintptr(fd), "nftables events"), fd: fd, own: own, table: table, more: make(chan struct{})}
	setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = e.file.Close()
		return nil, os.NewSyscallError("bind", err)
	}
	return e, nil
}

func (e *eventSocket) close() error {
	if err := e.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// patience is how long quiet waits for what is under way.
const patience = 200 * time.Millisecond

// Quiet says whether it is certain that nobody else changed the table since Mark
// returned a number, up to a generation.
func (c *Conn) Quiet(since int, generation uint32) bool { return c.events.quiet(since, generation) }

func (e *eventSocket) quiet(since int, generation uint32) bool {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		e.mu.Lock()
		certain, heard, more := e.running && !e.lost && e.touched == since, e.heard, e.more
		e.mu.Unlock()
		if !certain {
			return false
		}
		if int32(heard-generation) >= 0 {
			return true
		}
		select {
		case <-more:
		case <-timeout.C:
			return false
		}
	}
}

// Mark is called before something is read: Quiet tells of what has happened since.
func (c *Conn) Mark() int { return c.events.mark() }

func (e *eventSocket) mark() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.touched
}

func (e *eventSocket) note(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
	close(e.more)
	e.more = make(chan struct{})
}

// Listen tells when somebody else changes or removes the table, until the context ends or the Conn is
// closed. Join must come before.
func (c *Conn) Listen(ctx context.Context, log *slog.Logger, tell func()) {
	stop := context.AfterFunc(ctx, func() { _ = c.events.close() }) // ends the read
	defer stop()
	c.events.run(ctx, log, tell)
}

// Join has the kernel tell of changes from now on. It may be called once.
func (c *Conn) Join() error {
	if err := unix.SetsockoptInt(c.events.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNFTables); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	c.events.note(func() { c.events.running, c.events.touched = true, c.events.touched+1 }) // what was before isn't known
	return nil
}

// run reads until the socket is closed.
func (e *eventSocket) run(ctx context.Context, log *slog.Logger, tell func()) {
	defer e.note(func() { e.running = false })
	raw, err := e.file.SyscallConn()
	if err != nil {
		log.Error("read events of nftables; changes are found by the timer alone now", "error", err)
		return
	}
	buf := make([]byte, receiveSize)
	for {
		n, err := e.read(raw, buf)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			// Until the buffer is empty it drops more and doesn't say so again (netlink_overrun).
			e.note(func() { e.lost = true })
			tell()
		case errors.Is(err, unix.EAGAIN):
			e.note(func() { e.lost, e.touched = false, e.touched+1 })
			tell()
		case err != nil:
			if ctx.Err() == nil && !errors.Is(err, os.ErrClosed) {
				log.Error("read events of nftables; changes are found by the timer alone now", "error", err)
			}
			return
		default:
			if e.foreign(buf[:n]) {
				tell()
			}
		}
	}
}

// read waits for what the kernel tells; after a loss it gives EAGAIN once the buffer is empty.
func (e *eventSocket) read(raw syscall.RawConn, buf []byte) (n int, err error) {
	if e.lost {
		if raw.Read(func(fd uintptr) bool { n, err = unix.Read(int(fd), buf); return true }) == nil {
			return n, err
		}
	}
	return e.file.Read(buf) // where it is closed, it says so
}

// foreign says whether one of the messages is of our table and not of our making.
func (e *eventSocket) foreign(b []byte) bool {
	foreign, generation := false, uint32(0)
	for h, body := range messages(b) {
		if h.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(body) < familySize {
			continue
		}
		switch {
		case h.kind&0xff == unix.NFT_MSG_NEWGEN: // the end of a transaction
			generation = uint32(number(attr(body[familySize:], unix.NFTA_GEN_ID)))
		case h.port != e.own && body[0] == unix.NFPROTO_INET && text(attr(body[familySize:], attrTable)) == e.table:
			foreign = true
		}
	}
	if foreign || generation != 0 {
		e.note(func() {
			if foreign {
				e.touched++
			}
			if generation != 0 {
				e.heard = generation
			}
		})
	}
	return foreign
}
