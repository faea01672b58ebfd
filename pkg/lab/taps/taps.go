// SPDX-License-Identifier: Apache-2.0

// Package taps makes taps like a hypervisor, and plays the virtual machine behind them: by its frames, or by a network
// namespace whose eth0 is joined to the tap.
package taps

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
)

// maxFrame exceeds the size of any frame on these links.
const maxFrame = 1 << 16

// Open makes a tap in the current network namespace, and sets it up. Reading from the file returns frames for the
// machine; frames written to it come from the machine. The tap is removed when the file is closed.
func Open(name string) (*os.File, error) { return open(name) }

// open makes a tap, and sets it up after applying settings of `ip link set`.
func open(name string, settings ...string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open /dev/net/tun", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = os.NewSyscallError("TUNSETIFF", unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr))
	}
	if err == nil {
		err = ip(append([]string{"link", "set", name, "up"}, settings...)...)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make tap %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Machine makes eth0 of a virtual machine in the current network namespace, up and without addresses, and returns its
// other end: see Join.
func Machine(mac model.MAC) (*os.File, error) {
	if err := ip("link", "set", "lo", "up"); err != nil {
		return nil, err
	}
	return open("eth0", "address", mac.String()) // before it gets a link-local address from another one
}

// Join passes frames between two ends until either is closed.
func Join(a, b *os.File) (wait func()) {
	done := make(chan struct{}, 2)
	pass := func(from, to *os.File) {
		buf := make([]byte, maxFrame)
		for {
			n, err := from.Read(buf)
			if err != nil {
				break
			}
			// A link that is down accepts none (EIO); the machine sends it again.
			if _, err := to.Write(buf[:n]); errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
				break
			}
		}
		done <- struct{}{}
	}
	go pass(a, b)
	go pass(b, a)
	return func() { <-done; <-done }
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
