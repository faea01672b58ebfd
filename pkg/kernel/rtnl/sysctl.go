// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadSysctl reads a number below net, in the thread's namespace.
func ReadSysctl(name string) (int, error) {
	b, err := os.ReadFile("/proc/sys/net/" + name)
	if err != nil {
		return 0, fmt.Errorf("read sysctl: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return n, nil
}

// WriteSysctl sets a sysctl below net, in the thread's namespace.
func WriteSysctl(name, value string) error {
	file, err := os.OpenFile("/proc/sys/net/"+name, os.O_WRONLY, 0)
	if errors.Is(err, unix.EROFS) && writable() == nil {
		file, err = os.OpenFile("/proc/sys/net/"+name, os.O_WRONLY, 0)
	}
	if err != nil {
		return fmt.Errorf("set sysctl: %w", err)
	}
	_, err = file.WriteString(value)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("set sysctl: %w", err)
	}
	return nil
}

// writable makes /proc/sys writable if a container runtime has mounted it read-only over itself, as it does for every container that isn't
// privileged: a process that may set up mounts (CAP_SYS_ADMIN) may undo that, for its own container.
func writable() error {
	return unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}
