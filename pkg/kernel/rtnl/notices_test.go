// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/calico-go/calico/test/netns"
	"golang.org/x/sys/unix"
)

// TestDiscard: the kernel, which has dropped notices, tells of all again as soon as those that it kept are discarded.
func TestDiscard(t *testing.T) {
	netns.Host(t, func() {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			t.Fatal(err)
		}
		socket := os.NewFile(uintptr(fd), "notices")
		defer socket.Close()
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil { // the least there is
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groupRoute4}); err != nil {
			t.Fatal(err)
		}
		change := func(n int) { netns.IP(t, "route", "add", "blackhole", "10.9.0."+strconv.Itoa(n)) }
		for n := range 20 {
			change(n)
		}
		buf := make([]byte, ReceiveSize)
		if _, err := socket.Read(buf); !errors.Is(err, unix.ENOBUFS) {
			t.Fatalf("%v, want a loss", err)
		}
		if err := Discard(socket, buf); err != nil {
			t.Fatal(err)
		}
		change(20)
		n, err := unix.Read(fd, buf)
		if err != nil {
			t.Fatalf("the change after the loss: %v", err)
		}
		heard := ""
		Messages(buf[:n], func(h Header, body []byte) {
			if h.Kind == unix.RTM_NEWROUTE {
				heard = OnlyAddr(body).String()
			}
		})
		if heard != "10.9.0.20" {
			t.Errorf("heard of %q after the loss", heard)
		}
	})
}
