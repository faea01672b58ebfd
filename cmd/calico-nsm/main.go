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
	syscall.Umask(0o077)
	var cfg nsmanager.Config
	os.Exit(run.Daemon{
		Name: "calico-nsm", Version: version, Prefix: "calico_nsm", Options: nsmanager.Options(&cfg, hostname), Lock: &cfg.State, Health: "127.0.0.1:9095", Metrics: "127.0.0.1:9089",
		Start: func(ctx context.Context, env run.Env) (func(context.Context) error, error) {
			store.DiscardLibraryLogs()
			return nsmanager.Start(ctx, cfg, env)
		},
	}.Main(os.Args[1:], os.Environ()))
}
