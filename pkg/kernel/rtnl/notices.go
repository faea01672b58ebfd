// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// reopenPause is the pause before a Watch that lost events and could not reopen tries again.
const reopenPause = time.Second

// noticeBuffer is the buffer for events that aren't read yet, in bytes.
const noticeBuffer = 4 << 20

// Watch handles the kernel's events in a namespace. The library's subscriptions have a socket and a goroutine for each group, so that the
// order between groups is lost, and end when the kernel drops an event.
type Watch struct {
	Namespace ns.NetNS
	Groups    []uint // RTNLGRP_…
	// Begin reads what the events are about. It is called before the first event, and again, with lost set, after the kernel dropped some
	// because they weren't read in time.
	Begin func(lost bool) error
	// Note receives events that came together.
	Note func([]syscall.NetlinkMessage)
	// End is called when the context has ended, or with the reason why no more events come.
	End func(error)
}

// Start begins to watch, and returns when no later change can be missed.
func (w Watch) Start(ctx context.Context) error {
	socket, err := w.open(false)
	if err != nil {
		return err
	}
	closer := &closer{socket: socket}
	stop := context.AfterFunc(ctx, closer.close)
	go func() {
		defer stop()
		defer closer.close()
		w.End(w.run(ctx, closer))
	}()
	return nil
}

// open subscribes before it calls Begin: so one or the other sees each change in between.
func (w Watch) open(lost bool) (*nl.NetlinkSocket, error) {
	socket, err := nl.SubscribeAt(netns.NsHandle(w.Namespace.Fd()), netns.None(), unix.NETLINK_ROUTE, w.Groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to the kernel's notices: %w", err)
	}
	if socket.SetReceiveBufferSize(noticeBuffer, true) != nil {
		_ = socket.SetReceiveBufferSize(noticeBuffer, false) // as much as allowed
	}
	if err := w.Begin(lost); err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}

// run reads until the context ends. After a loss it replaces the socket: until its queue is empty the kernel drops more events, and doesn't
// say so again (netlink_overrun).
func (w Watch) run(ctx context.Context, c *closer) error {
	for {
		messages, _, err := c.socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			socket, err := w.open(true)
			for err != nil { // the load that makes the kernel drop events may also prevent reading links
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(reopenPause):
				}
				socket, err = w.open(true)
			}
			c.replace(socket)
		case err != nil:
			return fmt.Errorf("read the kernel's notices: %w", err)
		default:
			w.Note(messages)
		}
	}
}

// closer closes the socket that is in use by then.
type closer struct {
	mu     sync.Mutex
	socket *nl.NetlinkSocket
	closed bool
}

func (c *closer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.socket.Close()
}

func (c *closer) replace(socket *nl.NetlinkSocket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket.Close()
	if c.socket = socket; c.closed {
		socket.Close()
	}
}
