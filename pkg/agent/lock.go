// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockName is the file in the run directory that an agent holds a lock on while
// it runs.
const lockName = "agent.lock"

// lock makes sure that no other agent serves the run directory: a second one
// would take the gate's socket, and take it away when it ends. The kernel drops
// the lock with the process, however that ends.
func lock(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { _ = file.Close() }, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another calico-node runs with this directory: stop it first")
	}
	return nil, err
}
