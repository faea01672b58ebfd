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
	"syscall"

	"github.com/calico-go/calico/pkg/agent"
	"github.com/calico-go/calico/pkg/daemon/logfile"
	"github.com/calico-go/calico/pkg/kernel/legacy"
	"github.com/calico-go/calico/pkg/nft"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(run()) }

func run() int {
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
	case in.CleanUp:
		return cleanUp(in.Yes)
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

// cleanUp lists what an older version has left on the host, and removes it if that is wanted.
func cleanUp(remove bool) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	found, err := legacy.Find(ctx)
	if err == nil {
		err = found.Print(os.Stdout)
	}
	if err == nil && remove && len(found.Tables) > 0 {
		err = succeeded()
	}
	if err == nil && !found.Empty() && remove {
		err = found.Remove(ctx)
	}
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "calico-node: %v\n", err)
		return 1
	case found.Empty():
		fmt.Println("nothing of an older version is left to remove")
	case remove:
		fmt.Println("removed")
	default:
		fmt.Println("nothing is removed yet: add -yes for that, once calico-node runs and is ready on this host")
	}
	return 0
}

// succeeded says why the chains of an older version are still needed: nothing else holds policy, and pods would be open.
func succeeded() error {
	there, err := nft.Stands()
	if err == nil && !there {
		err = fmt.Errorf("nothing is removed: without table inet %s pods would be open; start calico-node, wait until it is ready, and run this again", nft.TableName)
	}
	return err
}
