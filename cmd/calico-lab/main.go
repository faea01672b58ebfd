// SPDX-License-Identifier: Apache-2.0

// Command calico-lab creates a complete Calico network on one machine, for learning and for reproducing bugs: etcd,
// virtual hosts with an agent each, and pods wired by the real plugins. Everything runs in separate network namespaces;
// the machine's own network is never touched.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := command(version)
	if len(os.Args) == 2 && os.Args[1] == "-version" { // like the other programs
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
