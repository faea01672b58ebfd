// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSysctlInContainer sets a sysctl where /proc/sys is mounted as in a container that isn't privileged.
func TestSysctlInContainer(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread, with its mounts, ends with the goroutine
		for _, err := range []error{
			unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""),
			unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
		} {
			if err != nil {
				t.Error(err)
				return
			}
		}
		const name = "ipv4/conf/lo/proxy_arp"
		if _, err := os.OpenFile("/proc/sys/net/"+name, os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
			t.Errorf("the test's /proc/sys is not read-only: %v", err)
			return
		}
		for _, value := range []string{"1", "0"} {
			if err := WriteSysctl(name, value); err != nil {
				t.Error(err)
			}
			if v, err := ReadSysctl(name); err != nil || v != int(value[0]-'0') {
				t.Errorf("it reads back as %d: %v", v, err)
			}
		}
	}()
	<-done
}
