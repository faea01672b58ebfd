// SPDX-License-Identifier: Apache-2.0

// Command peak runs a command and says how much memory it used at most. It is
// small: the kernel counts what a process had before exec as its own, which is
// the memory of its parent (setmax_mm_hiwater_rss in exec_mmap), and a
// benchmark that holds an etcd is larger than any plugin.
//
// The largest resident set of the command and its children, in KiB, goes to
// file descriptor 3; the exit status is the command's.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

func run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, fmt.Errorf("give it a command")
	}
	out := os.NewFile(3, "result")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, err
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, fmt.Errorf("no resource usage of %s", args[0])
	}
	if _, err := fmt.Fprintln(out, usage.Maxrss); err != nil {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}
