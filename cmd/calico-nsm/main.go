// SPDX-License-Identifier: Apache-2.0

// Command calico-nsm is the manager of a node's network service connections: see package nsmanager.
package main

import (
	"context"
	"os"
	"syscall"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/nsmanager"
	"github.com/calico-go/calico/pkg/store"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() {
	hostname, _ := os.Hostname() // -node is required where there is none
	cfg, err := nsmanager.ParseConfig(os.Args[1:], os.Environ(), hostname, os.Stderr)
	os.Exit(run.Main("calico-nsm", version, err, func(ctx context.Context) error {
		store.DiscardLibraryLogs()
		syscall.Umask(0o077)
		return nsmanager.Run(ctx, cfg)
	}))
}
