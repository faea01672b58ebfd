// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const groupNFTables = 7 // NFNLGRP_NFTABLES

// Listen calls tell when others change or remove the table, or may have, until the context ends. It returns at once; it calls closed in the
// end.
func (c *Conn) Listen(ctx context.Context, log *slog.Logger, tell, closed func()) error {
	sock, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{Groups: 1 << (groupNFTables - 1)})
	if err != nil {
		return err
	}
	_ = sock.SetReadBuffer(receiveBuffer)                       // or as large as allowed
	stop := context.AfterFunc(ctx, func() { _ = sock.Close() }) // ends Receive
	go func() {
		defer closed()
		defer stop()
		for {
			events, err := sock.Receive()
			switch {
			case errors.Is(err, unix.ENOBUFS):
				tell() // some were lost
			case err != nil:
				_ = sock.Close()
				if ctx.Err() == nil && !errors.Is(err, os.ErrClosed) {
					log.Error("read events of nftables; changes are found by the timer alone now", "error", err)
				}
				return
			case c.foreign(events):
				tell()
			}
		}
	}()
	return nil
}

// foreign reports whether one of the events is about our table but not caused by us.
func (c *Conn) foreign(events []netlink.Message) bool {
	for _, e := range events {
		if e.Header.Type>>8 == unix.NFNL_SUBSYS_NFTABLES && e.Header.Type&0xff != unix.NFT_MSG_NEWGEN && e.Header.PID != c.sock.port &&
			len(e.Data) > familySize && e.Data[0] == unix.NFPROTO_INET && text(attr(e.Data[familySize:], attrTable)) == c.table {
			return true
		}
	}
	return false
}
