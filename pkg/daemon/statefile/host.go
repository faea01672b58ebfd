// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// OnHost returns the path at which this process sees a directory of the host: below /host if a container has the directory, or its parent,
// mounted there, else dir itself.
func OnHost(dir string) string {
	for _, mounted := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat("/host" + mounted); err == nil && info.IsDir() && mounted != "/" {
			return "/host" + dir
		}
	}
	return dir
}

// remedies says what an operator can do about an error of the system.
func remedies() map[syscall.Errno]string {
	const denied = "run as root, in a pod with securityContext.privileged, and look for SELinux' or AppArmor's word on it in the node's audit log"
	return map[syscall.Errno]string{
		syscall.EROFS:   "it is on a read-only file system: mount it without readOnly, or choose a directory that is writable on the node",
		syscall.ENOSPC:  "the disk is full: free space on the node; it is tried again",
		syscall.EDQUOT:  "the disk's quota is used up: free space on the node; it is tried again",
		syscall.EACCES:  denied,
		syscall.EPERM:   "it, or its directory, is immutable (lsattr shows an i or an a: chattr -i -a), or the process lacks a capability: " + denied,
		syscall.ENOENT:  "it isn't there: in a pod, mount the node's directory (hostPath) at that path, or at the same below /host; else make it",
		syscall.ENOTDIR: "a part of the path is a file",
	}
}

// Advise adds advice to an error about a file of the host, if there is any. It returns nil for nil.
func Advise(err error) error {
	if err == nil {
		return nil
	}
	for errno, remedy := range remedies() {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %s", err, remedy)
		}
	}
	return err
}
