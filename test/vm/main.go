// SPDX-License-Identifier: Apache-2.0

// Command vm runs test binaries in a small virtual machine with Debian's kernel, for what the kernel of a build machine
// may lack: IPIP, and a clock of one's own. The machine is emulated in software; it has no network and no disk, and all
// that it runs is in its initial file system.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// An options is what the command line says.
type options struct {
	kernel   string // a directory with vmlinuz and lib/modules
	programs string // a directory with the programs of the project
	limit    time.Duration
	memory   int // MiB
	cpus     int
	tests    []string // test binaries, in order
	run      string   // of the tests
}

func main() {
	o := options{}
	flag.StringVar(&o.kernel, "kernel", "bin/vm/kernel", "directory with vmlinuz and lib/modules")
	flag.StringVar(&o.programs, "programs", "bin", "directory with the built programs")
	flag.DurationVar(&o.limit, "limit", 30*time.Minute, "how long the machine may run")
	flag.IntVar(&o.memory, "memory", 2048, "memory of the machine in MiB")
	// One: where the kernel turns a hook of nftables on or off it changes its own code, and the emulation of
	// two, as of QEMU 7.2, now and then never gets past the changed place on either.
	flag.IntVar(&o.cpus, "cpus", 1, "processors of the machine")
	flag.StringVar(&o.run, "run", "", "tests to run: a pattern as for go test; empty = all")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: vm [flags] test-binary…\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	o.tests = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		stop()
		os.Exit(1)
	}
}

// run makes the machine's file system, starts the machine and returns what came of the tests.
func run(ctx context.Context, o options) (err error) {
	if len(o.tests) == 0 {
		return errors.New("no test binary is named: go test -c makes one")
	}
	dir, err := os.MkdirTemp("", "calico-vm")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	start := time.Now()
	image := filepath.Join(dir, "initramfs")
	size, err := makeImage(ctx, o, dir, image)
	if err != nil {
		return fmt.Errorf("make the machine's file system: %w", err)
	}
	fmt.Printf("vm: file system of %d MiB made in %.1f s\n", size>>20, time.Since(start).Seconds())
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("the machine didn't end within %v", o.limit))
	defer cancel()
	return boot(ctx, o, image)
}
