// SPDX-License-Identifier: Apache-2.0

// Command calico-install prepares a node for calico-node, as the init container of its pod or by hand, and takes Calico
// away again: see package installer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/calico-go/calico/pkg/installer"
	"github.com/calico-go/calico/pkg/installer/bootstrap"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

const usage = `calico-install             puts the plugins and the network configuration on this node
calico-install uninstall   takes all of Calico away from this node; -data: the data of the manifests' etcd too;
                           -stay: goes on until no pod is left
calico-install bootstrap   makes what a cluster needs before the first agent can run: certificates and users of Calico's
                           own etcd, and the default pool; renew: what of it is due; data: of an etcd that exists
calico-install etcd FILE   writes the configuration of that etcd's member on this node
calico-install -version    prints the version

It is configured by the environment: see docs/configuration.md.
`

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	verb := "install" // without an argument
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	var do func(context.Context, installer.Config) error
	switch verb {
	case "install":
		do = installer.Install
	case "uninstall":
		flags := flag.NewFlagSet("calico-install uninstall", flag.ContinueOnError)
		data := flags.Bool("data", false, "remove the data of the etcd that the manifests run as well: all that Calico knows of the cluster")
		stay := flags.Bool("stay", false, "do it again until no pod is left, and then do nothing until told to end, as a DaemonSet's pod does")
		switch err := flags.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return 0
		case err == nil && flags.NArg() > 0:
			fmt.Fprintf(os.Stderr, "calico-install: argument %q is not understood\n%s", flags.Arg(0), usage)
			return 2
		case err != nil:
			return 2
		}
		do = func(ctx context.Context, c installer.Config) error { return uninstall(ctx, c, *data, *stay) }
	case "-v", "-version", "--version":
		fmt.Println("calico-install", version)
		return 0
	case "-h", "-help", "--help", "help":
		fmt.Print(usage)
		return 0
	case "etcd":
		if len(args) != 1 {
			fmt.Fprintf(os.Stderr, "calico-install: etcd %q: want the file to write\n%s", args, usage)
			return 2
		}
		text, err := bootstrap.EtcdConfig(os.Environ())
		if err == nil {
			err = os.WriteFile(args[0], text, 0o644)
		}
		return exit(err)
	case "bootstrap": // it has a configuration of its own
	default:
		fmt.Fprintf(os.Stderr, "calico-install: %q is not understood\n%s", verb, usage)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if verb == "bootstrap" {
		return exit(runBootstrap(ctx, args))
	}
	self, err := os.Executable()
	if err == nil {
		var c installer.Config
		if c, err = installer.ParseConfig(os.Environ(), filepath.Dir(self)); err == nil {
			c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
			err = do(ctx, c)
		}
	}
	return exit(err)
}

// again is how often a node is looked at on which there are still pods, or something is still in the way.
const again = 5 * time.Second

func uninstall(ctx context.Context, c installer.Config, data, stay bool) error {
	pods, err := installer.Uninstall(ctx, c, data)
	if !stay {
		return err
	}
	for said := ""; ; {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && err.Error() != said:
			said = err.Error()
			c.Logger.Error("not yet", "error", err)
		case err == nil && pods == 0:
			<-ctx.Done()
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
			pods, err = installer.Uninstall(ctx, c, data)
		}
	}
}

func runBootstrap(ctx context.Context, args []string) error {
	c, err := bootstrap.ParseConfig(args, os.Environ(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	return bootstrap.Run(ctx, c)
}

func exit(err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "calico-install: %v\n", err)
		return 1
	}
	return 0
}
