// SPDX-License-Identifier: Apache-2.0

// Command calico-controllers carries Kubernetes' objects into etcd: see package controllers.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/calico-go/calico/pkg/controllers"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(run()) }

// gcPercent is how much the heap may grow between two collections, in percent, where GOGC says nothing: most of the heap
// is what the watches know, and stays.
const gcPercent = 50

func run() int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	in, err := controllers.ParseConfig(os.Args[1:], os.Environ(), os.Stderr)
	var usage *controllers.UsageError
	switch {
	case errors.As(err, &usage) && usage.Help:
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "calico-controllers: %v\n", err)
		return 2
	case in.Version:
		fmt.Println("calico-controllers", version)
		return 0
	}
	level := new(slog.LevelVar)
	in.Config.Version, in.Config.Level = version, level
	in.Config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	hostname, _ := os.Hostname() // the rest of the identity is unique
	in.Config.Identity = hostname + "_" + rand.Text()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	do := controllers.Run
	switch {
	case in.GCDryRun:
		do = func(ctx context.Context, cfg controllers.Config) error {
			return controllers.ListGarbage(ctx, cfg, os.Stdout)
		}
	case in.GCResume:
		do = func(ctx context.Context, cfg controllers.Config) error {
			return controllers.ResumeGarbage(ctx, cfg, os.Stdout)
		}
	}
	if err := do(ctx, in.Config); err != nil {
		fmt.Fprintf(os.Stderr, "calico-controllers: %v\n", err)
		return 1
	}
	return 0
}
