// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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
	pid := strings.TrimSpace(string(data))
	if _, bad := strconv.Atoi(pid); err != nil || bad != nil {
		return ""
	}
	return ", process " + pid + ","
}
