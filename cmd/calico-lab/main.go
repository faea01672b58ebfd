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

// version is stamped in by the Makefile.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(version).ExecuteContext(ctx)
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
