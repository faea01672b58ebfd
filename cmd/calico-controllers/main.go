// SPDX-License-Identifier: Apache-2.0

// Command calico-controllers carries Kubernetes' objects into etcd: see package controllers.
package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/calico-go/calico/pkg/controllers"
	"github.com/calico-go/calico/pkg/daemon/run"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

// gcPercent is how much the heap may grow between two collections, in percent, where GOGC says nothing: most of the heap
// is what the watches know, and stays.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	in, err := controllers.ParseConfig(os.Args[1:], os.Environ(), os.Stderr)
	os.Exit(run.Main("calico-controllers", version, err, func(ctx context.Context) error {
		cfg := in.Config
		cfg.Version, cfg.Logger = version, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel}))
		hostname, _ := os.Hostname() // the rest of the identity is unique
		cfg.Identity = hostname + "_" + rand.Text()
		switch {
		case in.GCDryRun:
			return controllers.ListGarbage(ctx, cfg, os.Stdout)
		case in.GCResume:
			return controllers.ResumeGarbage(ctx, cfg, os.Stdout)
		}
		return controllers.Run(ctx, cfg)
	}))
}
