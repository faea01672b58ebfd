// SPDX-License-Identifier: Apache-2.0

// Command calicoctl reads and changes a cluster's configuration: see package ctl.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/calico-go/calico/pkg/ctl"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/store"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() {
	store.DiscardLibraryLogs()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	env := &session.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Version: version, After: time.After}
	status := ctl.Run(ctx, env, os.Args[1:])
	stop()
	os.Exit(status)
}
