// SPDX-License-Identifier: Apache-2.0

// Command calico-lab makes a whole Calico network on one machine, to learn
// from and to reproduce bugs in: etcd, virtual hosts with an agent each, and
// pods wired by the real plugins. Everything runs in network namespaces of its
// own; the machine's own network is never touched.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := command(version)
	if len(os.Args) == 2 && os.Args[1] == "-version" { // as the other programs have it
		root.SetArgs([]string{"--version"})
	}
	err := root.ExecuteContext(ctx)
	stop()
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.code)
	case err != nil:
		fmt.Fprintln(os.Stderr, "calico-lab:", err)
		os.Exit(1)
	}
}
