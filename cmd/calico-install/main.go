// SPDX-License-Identifier: Apache-2.0

// Command calico-install prepares a node for calico-node, as the init container of its pod or by hand, and takes Calico
// away again: see package installer.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/installer"
	"github.com/calico-go/calico/pkg/installer/bootstrap"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

const usage = `calico-install             puts the plugins and the network configuration on this node
calico-install uninstall   takes all of Calico away from this node; -data: the data of the manifests' etcd too;
                           -stay: goes on until no pod is left
calico-install bootstrap   makes what a cluster needs before the first agent can run: certificates and users of Calico's
                           own etcd, and the default pool; renew: what of it is due; sign: nodes' certificates, until it
                           is ended; sign-nsm: those of the managers of network services; data: of an etcd that exists
calico-install revoke NODE has that etcd refuse whatever a node of this name asks; -undo: no longer, once that Node is
                           deleted; -shared, without NODE: removes the users that all nodes shared in a former release
calico-install etcd FILE   writes the configuration of that etcd's member on this node
calico-install -version    prints the version

It is configured by the environment: see docs/configuration.md.
`

func main() {
	do, err := parse(os.Args[1:])
	os.Exit(run.Main("calico-install", version, err, do))
}

// parse finds what a command line asks for.
func parse(args []string) (do func(context.Context) error, err error) {
	verb := "install" // without an argument
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch verb {
	case "install":
		return configured(log, installer.Install), nil
	case "uninstall":
		flags := flag.NewFlagSet("calico-install uninstall", flag.ContinueOnError)
		data := flags.Bool("data", false, "remove the data of the etcd that the manifests run as well: all that Calico knows of the cluster")
		stay := flags.Bool("stay", false, "do it again until no pod is left, and then do nothing until told to end, as a DaemonSet's pod does")
		if err = run.Parse(flags, nil, args, nil); err != nil {
			return nil, err
		}
		return configured(log, func(ctx context.Context, c installer.Config) error { return uninstall(ctx, c, *data, *stay) }), nil
	case "bootstrap":
		return func(ctx context.Context) error {
			c, err := bootstrap.ParseConfig(args, os.Environ(), log)
			if err != nil {
				return err
			}
			return bootstrap.Run(ctx, c)
		}, nil
	case "revoke":
		return revoke(log, args)
	case "etcd":
		if len(args) != 1 {
			return nil, fmt.Errorf("etcd %q: want the file to write\n%s", args, usage)
		}
		return func(context.Context) error {
			text, err := bootstrap.EtcdConfig(os.Environ())
			if err != nil {
				return err
			}
			return os.WriteFile(args[0], text, 0o644)
		}, nil
	case "-v", "-version", "--version":
		return nil, run.ErrVersion
	case "-h", "-help", "--help", "help":
		fmt.Print(usage)
		return nil, flag.ErrHelp
	}
	return nil, fmt.Errorf("%q is not understood\n%s", verb, usage)
}

func revoke(log *slog.Logger, args []string) (do func(context.Context) error, err error) {
	flags := flag.NewFlagSet("calico-install revoke", flag.ContinueOnError)
	undo := flags.Bool("undo", false, "let a node that was revoked be")
	shared := flags.Bool("shared", false, "remove the users that all nodes shared in a former release, to which there is no way back then")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() != 1 && !*shared || *shared && (*undo || flags.NArg() > 0) {
		return nil, fmt.Errorf("revoke %q: want one node, or -shared\n%s", args, usage)
	}
	return func(ctx context.Context) error {
		c, err := bootstrap.ParseConfig([]string{"sign"}, os.Environ(), log)
		if err != nil {
			return err
		}
		if *shared {
			return bootstrap.Retire(ctx, c)
		}
		return bootstrap.Revoke(ctx, c, flags.Arg(0), *undo)
	}, nil
}

// configured does something by what the environment says of the node.
func configured(log *slog.Logger, do func(context.Context, installer.Config) error) func(context.Context) error {
	return func(ctx context.Context) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		c, err := installer.ParseConfig(os.Environ(), filepath.Dir(self))
		if err != nil {
			return err
		}
		c.Logger = log
		return do(ctx, c)
	}
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
