// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab"
)

const (
	trafficPort = 9000
	// Flows are short, and those that are compared follow each other at once: a machine that others
	// share has another speed a second later.
	packetTime = 40 * time.Millisecond // of one flow
	streamTime = 80 * time.Millisecond // of a stream, which takes a while to come to its rate
	// congestionControl is what Linux comes with. Namespaces have what the machine is
	// set to, which may pace: then a stream shows less of what packets cost.
	congestionControl = "cubic"
)

// traffic is what one flow did.
type traffic struct {
	amount    float64 // transactions, or bytes
	wall, cpu time.Duration
}

func (t traffic) rate() float64 { return t.amount / t.wall.Seconds() }

// perCPU is the rate that one processor alone would have reached: that others
// need the processor as well doesn't show.
func (t traffic) perCPU() float64 { return t.amount / t.cpu.Seconds() }

// trafficKind is a kind of flow: what both ends do until the client's time is up.
type trafficKind struct {
	name   string
	time   time.Duration // of one flow
	text   func(rate float64) string
	client func(to unix.Sockaddr, until time.Time) (amount float64, err error)
	server func(listener int) error
}

var trafficKinds = []trafficKind{
	{"TCP request and response", packetTime, perSecond, requests, answer},
	{"TCP stream", streamTime, gigabits, pour, drain},
}

// course is where a flow to an IPv4 address runs, and for how long.
type course struct {
	from, to lab.Namespace
	at       netip.Addr // of to
	lasts    time.Duration
	// on runs an end of it, and adds up what it used: pinned or free.
	on func(used *time.Duration, end func() error) error
}

func perSecond(rate float64) string { return fmt.Sprintf("%.0f/s", rate) }
func gigabits(rate float64) string  { return fmt.Sprintf("%.2f Gbit/s", rate*8/1e9) }

// measure runs one flow.
func (k trafficKind) measure(c course) (traffic, error) {
	addr := &unix.SockaddrInet4{Addr: c.at.As4(), Port: trafficPort}
	listener := -1
	err := c.to.Do(func() (err error) {
		listener, err = listen(addr)
		return err
	})
	if err != nil {
		return traffic{}, err
	}
	var server time.Duration
	done := make(chan error, 1)
	go func() {
		done <- c.to.Do(func() error { return c.on(&server, func() error { return k.server(listener) }) })
	}()
	t := traffic{}
	err = c.from.Do(func() error {
		return c.on(&t.cpu, func() (err error) {
			begin := time.Now()
			t.amount, err = k.client(addr, begin.Add(c.lasts))
			t.wall = time.Since(begin)
			return err
		})
	})
	// Where the client failed, the server still waits for it.
	_ = unix.Shutdown(listener, unix.SHUT_RD)
	err = errors.Join(err, <-done, os.NewSyscallError("close", unix.Close(listener)))
	t.cpu += server
	if err == nil && t.amount == 0 {
		err = errors.New("nothing got through")
	}
	return t, err
}

// pinned runs fn on the first processor and adds up what it used.
func pinned(used *time.Duration, fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			first.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &first); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	err := free(used, fn)
	return errors.Join(err, os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &before)))
}

// free runs fn on whatever processor the kernel finds and adds up what it used.
func free(used *time.Duration, fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, err := threadTime()
	if err == nil {
		err = fn()
	}
	end, e := threadTime()
	*used += end - start
	return errors.Join(err, e)
}

func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano()), os.NewSyscallError("clock_gettime", err)
}

func listen(addr *unix.SockaddrInet4) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = errors.Join(os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)),
		os.NewSyscallError("bind", unix.Bind(fd, addr)), os.NewSyscallError("listen", unix.Listen(fd, 128)))
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// dial connects; a closing end leaves no TIME_WAIT behind, so that ports don't run out.
func dial(to unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = errors.Join(os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)),
		os.NewSyscallError("setsockopt", unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})))
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, to))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// echo sends one byte and waits for it.
func echo(fd int) error {
	var b [1]byte
	if _, err := unix.Write(fd, b[:]); err != nil {
		return os.NewSyscallError("write", err)
	}
	n, err := unix.Read(fd, b[:])
	if err == nil && n == 0 {
		err = errors.New("the other end closed the connection")
	}
	return err
}

func requests(to unix.Sockaddr, until time.Time) (n float64, err error) {
	fd, err := dial(to)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	for time.Now().Before(until) {
		if err := echo(fd); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// pour sends as much as it can.
func pour(to unix.Sockaddr, until time.Time) (n float64, err error) {
	fd, err := dial(to)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestionControl); err != nil {
		return 0, fmt.Errorf("congestion control %s: %w", congestionControl, err)
	}
	b := make([]byte, 128<<10)
	for time.Now().Before(until) {
		sent, err := unix.Write(fd, b)
		if err != nil {
			return n, os.NewSyscallError("write", err)
		}
		n += float64(sent)
	}
	return n, nil
}

// accept waits for a connection and serves it until it ends; the client's end
// resets it.
func accept(listener int, serve func(fd int, b []byte) error) error {
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("accept", err)
	}
	defer func() { _ = unix.Close(fd) }() // the client has closed it
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	b := make([]byte, 128<<10)
	for err == nil {
		err = serve(fd, b)
	}
	if errors.Is(err, errEnd) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

var errEnd = errors.New("the connection ended")

func swallow(fd int, b []byte) error {
	n, err := unix.Read(fd, b)
	if err == nil && n == 0 {
		return errEnd
	}
	return err
}

func reply(fd int, b []byte) error {
	err := swallow(fd, b[:1])
	if err == nil {
		_, err = unix.Write(fd, b[:1])
	}
	return err
}

func answer(listener int) error { return accept(listener, reply) }
func drain(listener int) error  { return accept(listener, swallow) }
