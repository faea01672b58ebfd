// SPDX-License-Identifier: Apache-2.0

// Command calico-nsm is the manager of a node's network service connections: see package nsmanager.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/calico-go/calico/pkg/nsmanager"
	"github.com/calico-go/calico/pkg/store"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(run()) }

func run() int {
	cfg, wantsVersion, err := nsmanager.ParseConfig(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "calico-nsm: %v\n", err)
		return 2
	case wantsVersion:
		fmt.Println("calico-nsm", version)
		return 0
	}
	store.DiscardLibraryLogs()
	syscall.Umask(0o077)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := nsmanager.Run(ctx, cfg); err != nil {
		fmt.Fprintf(os.Stderr, "calico-nsm: %v\n", err)
		return 1
	}
	return 0
}
