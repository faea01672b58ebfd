// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LockName is the file in the run directory that an agent holds a lock on while
// it runs.
const LockName = "agent.lock"

// alone makes sure that no other agent serves the run directory: a second one
// would take the gate's socket, and take it away when it ends. The kernel drops
// the lock with the process, however that ends.
func alone(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, LockName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another calico-node%s runs with this directory: stop it first", holder(path))
	}
	if err == nil {
		// Who it is helps whoever comes next, and nothing depends on it.
		_ = file.Truncate(0)
		_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		return func() { _ = file.Close() }, nil
	}
	_ = file.Close()
	return nil, err
}

// holder is the process that the file names, for people.
func holder(path string) string {
	data, err := os.ReadFile(path)
	pid, bad := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || bad != nil {
		return ""
	}
	return process(pid)
}

func process(pid int) string { return fmt.Sprintf(", process %d,", pid) }

// networkLock is the name of an abstract socket, of which each network namespace
// has its own (unix(7)). Who listens there keeps the namespace's firewall and routes.
const networkLock = "@calico-node"

// aloneInNetwork makes sure that no other agent is at work in this network
// namespace, with whatever run directory: the two would take each other's firewall
// and routes away. The kernel drops the socket with the process.
//
// Anybody may take such a name. So it is only another agent where the holder is the
// same user; why nothing is locked otherwise is in doubt.
func aloneInNetwork() (release func(), doubt, err error) {
	address := &net.UnixAddr{Name: networkLock, Net: "unix"}
	listener, err := net.ListenUnix("unix", address)
	if errors.Is(err, unix.EADDRINUSE) {
		who, unknown := peer(address)
		switch {
		case unknown != nil:
			return func() {}, fmt.Errorf("it isn't known who has the socket %s: %w", networkLock, unknown), nil
		case int(who.Uid) != os.Geteuid():
			return func() {}, fmt.Errorf("process %d of user %d has the socket %s, and is no agent", who.Pid, who.Uid, networkLock), nil
		}
		return nil, nil, fmt.Errorf("another calico-node%s is at work here: stop it first, or start this one in a network namespace of its own", process(int(who.Pid)))
	}
	if err != nil {
		return func() {}, err, nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			_ = c.Close() // that it was answered is all there is to say
		}
	}()
	return func() {
		_ = listener.Close()
		<-ended
	}, nil, nil
}

// peerTimeout bounds the question who listens at an address.
const peerTimeout = time.Second

// peer is the process that listens at an address.
func peer(address *net.UnixAddr) (*unix.Ucred, error) {
	c, err := net.DialTimeout(address.Net, address.Name, peerTimeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing was sent
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var who *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) { who, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return who, asked
}
