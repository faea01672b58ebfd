// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// privileged returns an error if the calling thread lacks a capability without which nothing can be programmed.
func privileged() error {
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return nil // a missing right shows when it is used
	}
	var lacks []string
	for _, c := range []struct {
		name   string
		number int
	}{{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}} {
		if sets[c.number/32].Effective>>(c.number%32)&1 == 0 {
			lacks = append(lacks, c.name)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("user %d has not %s: run it as root, or with the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN", unix.Geteuid(), strings.Join(lacks, " and "))
}
