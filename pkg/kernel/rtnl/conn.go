// SPDX-License-Identifier: Apache-2.0

// Package rtnl is what this project adds to github.com/vishvananda/netlink: dumps that are repeated when changes interrupt them, requests
// that the library has no function for, events of several groups by one socket, sysctls, and conversions between the library's types and
// net/netip's.
package rtnl

import (
	"bytes"
	"errors"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Conn is a connection to the kernel's route netlink in one network namespace: the library's handle, and a socket for requests that the
// library has no function for. It stays in the namespace that it was opened in. It is not safe for concurrent use.
type Conn struct {
	*netlink.Handle
	sockets map[int]*nl.SocketHandle
}

// Dial opens a Conn in the calling thread's namespace.
func Dial() (*Conn, error) { return dial(netns.None()) }

// DialAt opens a Conn in a namespace.
func DialAt(n ns.NetNS) (*Conn, error) { return dial(netns.NsHandle(n.Fd())) }

func dial(n netns.NsHandle) (*Conn, error) {
	handle, err := netlink.NewHandleAt(n, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	socket, err := nl.GetNetlinkSocketAt(n, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, err
	}
	_ = socket.SetExtAck(true) // without it errors have no text
	return &Conn{handle, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}}, nil
}

// Close closes both sockets.
func (c *Conn) Close() {
	c.Handle.Close()
	c.sockets[unix.NETLINK_ROUTE].Close()
}

// Request sends a request that the library has no function for, and returns the answers of one message type. Flags are
// NLM_F_DUMP or NLM_F_ACK, or 0 for a request with one answer.
func (c *Conn) Request(kind, flags int, answer uint16, parts ...nl.NetlinkRequestData) ([][]byte, error) {
	return Dump(func() ([][]byte, error) {
		request := nl.NewNetlinkRequest(kind, flags)
		request.Sockets = c.sockets
		for _, p := range parts {
			request.AddData(p)
		}
		return request.Execute(unix.NETLINK_ROUTE, answer)
	})
}

// dumpTries is how many times a dump is tried.
const dumpTries = 20

// Dump calls a function that lists what the kernel holds, and repeats it while changes interrupt it: an interrupted list may lack entries.
func Dump[T any](list func() (T, error)) (found T, err error) {
	for range dumpTries {
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return found, err
}

// Attributes calls fn for each netlink attribute in b, until a truncated one.
func Attributes(b []byte, fn func(kind uint16, data []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		n := int(nl.NativeEndian().Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return
		}
		fn(nl.NativeEndian().Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:n])
		b = b[min((n+3)&^3, len(b)):]
	}
}

// Uint32 decodes an attribute's number; 0 if truncated.
func Uint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return nl.NativeEndian().Uint32(b)
}

// Text decodes an attribute's string, which ends at a NUL.
func Text(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// IsGone reports whether an error says that what should be deleted doesn't exist.
func IsGone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL)
}
