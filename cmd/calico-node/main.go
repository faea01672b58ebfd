// SPDX-License-Identifier: Apache-2.0

// Command calico-node is the agent of a host: see package agent.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/calico-go/calico/pkg/agent"
	"github.com/calico-go/calico/pkg/daemon/logfile"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(run()) }

// garbage is how much the heap may grow between two collections, in percent, where GOGC says nothing. With hundreds of
// BGP neighbours most of the heap stays for good, and the language's default of 100 would double it.
const garbage = 50

func run() int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "" // it matters only where NODENAME isn't set, and is refused there
	}
	in, err := agent.ParseConfig(os.Args[1:], os.Environ(), hostname, os.Stderr)
	var usage *agent.UsageError
	switch {
	case errors.As(err, &usage) && usage.Help:
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "calico-node: %v\n", err)
		return 2
	case in.Version:
		fmt.Println("calico-node", version)
		return 0
	}
	level := new(slog.LevelVar)
	file := logfile.New()
	log := slog.New(slog.NewMultiHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}), file.Handler()))
	in.Config.Version, in.Config.Logger, in.Config.Level, in.Config.LogFile = version, log, level, file

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := agent.Run(ctx, in.Config); err != nil {
		fmt.Fprintf(os.Stderr, "calico-node: %v\n", err)
		return 1
	}
	return 0
}
