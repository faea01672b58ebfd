// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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
	if err != nil {
		return fmt.Errorf("set sysctl: %w", err)
	}
	_, err = file.WriteString(value)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("set sysctl: %w", err)
	}
	return nil
}
