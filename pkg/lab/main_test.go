// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// nestedVariable marks the process that runs the tests.
const nestedVariable = "CALICO_LAB_TEST_NESTED"

// TestMain runs all tests where Root and the machine's network are theirs alone: another process that
// starts a lab sweeps away what one of them has left on purpose, and makes locks while it looks.
func TestMain(m *testing.M) {
	if os.Getenv(nestedVariable) != "" {
		if os.Getenv(crashEnv) == "" { // else it is a test's, and shares all with it
			if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
				fmt.Fprintf(os.Stderr, "mount an empty /run: %v\n", err)
				os.Exit(1)
			}
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the child dies with the thread that made it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), nestedVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Unshare makes mounts private, which a clone leaves shared.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintf(os.Stderr, "run the tests in namespaces of their own (it takes root): %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}
