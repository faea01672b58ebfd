// SPDX-License-Identifier: Apache-2.0

// Package runlock locks a directory that one process at a time may use, such as the agent's run directory.
package runlock

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Agent is the name of the file in its run directory that the agent locks while it runs.
const Agent = "agent.lock"

// ErrHeld says that another process holds the lock.
var ErrHeld = errors.New("another process runs with this directory: stop it first")

// Take locks the file called name in the directory, so that no other process serves the directory: a second one would replace the sockets
// in it, and remove them when it ends. The kernel drops the lock with the process, however that ends.
func Take(dir, name string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { _ = file.Close() }, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrHeld
	}
	return nil, err
}
