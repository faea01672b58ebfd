// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

const groupNFTables = 7 // NFNLGRP_NFTABLES

// eventSocket hears of changes of the ruleset once it has joined the group.
type eventSocket struct {
	file *os.File
	fd   int
	own  uint32 // port of the socket that makes our changes
}

func openEvents(own uint32) (*eventSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	e := &eventSocket{os.NewFile(uintptr(fd), "nftables events"), fd, own}
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

// Subscribe tells when somebody else changes or removes our table. While nobody
// receives, events become one. It may be called once; the channel is closed when
// the context ends or the Firewall is closed.
func (f *Firewall) Subscribe(ctx context.Context) (<-chan Event, error) {
	if err := unix.SetsockoptInt(f.events.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNFTables); err != nil {
		return nil, os.NewSyscallError("subscribe to changes of nftables: setsockopt", err)
	}
	out := make(chan Event, 1)
	stop := context.AfterFunc(ctx, func() { _ = f.events.close() }) // ends the read
	go func() {
		defer close(out)
		defer stop()
		f.events.run(ctx, f.cfg.Logger, func() {
			select {
			case out <- Event{}:
			default: // one waits already
			}
		})
	}()
	return out, nil
}

// run reads until the socket is closed.
func (e *eventSocket) run(ctx context.Context, log *slog.Logger, tell func()) {
	buf := make([]byte, receiveSize)
	for {
		n, err := e.file.Read(buf)
		switch {
		case errors.Is(err, unix.ENOBUFS): // the kernel dropped some, and goes on
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

// foreign says whether one of the messages is of our table and not of our making.
func (e *eventSocket) foreign(b []byte) bool {
	for h, body := range messages(b) {
		if h.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || h.kind&0xff == unix.NFT_MSG_NEWGEN || h.port == e.own || len(body) < familySize {
			continue
		}
		if body[0] == unix.NFPROTO_INET && text(attr(body[familySize:], attrTable)) == TableName {
			return true
		}
	}
	return false
}
