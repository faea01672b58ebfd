// SPDX-License-Identifier: Apache-2.0

// Command nsmctl requests network service connections for its pod, and offers network services: see package nsmclient.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/calico-go/calico/pkg/nsmclient"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) > 1 && os.Args[1] == "-version" {
		fmt.Println("nsmctl", version)
		return 0
	}
	syscall.Umask(0o077)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := nsmclient.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, nsmclient.ErrUsage):
		fmt.Fprintf(os.Stderr, "nsmctl: %v\n", err)
		return 2
	}
	fmt.Fprintf(os.Stderr, "nsmctl: %v\n", err)
	return 1
}
