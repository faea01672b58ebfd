// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/installer/bootstrap"
)

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

// An invocation is one run of calico-install.
type invocation struct {
	environ []string
	log     *slog.Logger
}

// Verbs returns the program calico-install.
func Verbs(version string, environ []string) run.Verbs {
	i := invocation{environ, slog.New(slog.NewTextHandler(os.Stderr, nil))}
	const name = "calico-install"
	do := func(parse func(args []string) (func(context.Context) error, error)) func(args []string) int {
		return func(args []string) int {
			do, err := parse(args)
			return run.Main(name, version, err, do)
		}
	}
	install := do(func([]string) (func(context.Context) error, error) { return i.configured(Install), nil })
	return run.Verbs{Name: name, Version: version, Usage: usage, Do: map[string]func([]string) int{
		"": install, "install": install, "uninstall": do(i.uninstall), "bootstrap": do(i.bootstrap), "revoke": do(i.revoke), "etcd": do(i.etcd),
	}}
}

// configured returns a function that calls do with the Config from the environment.
func (i invocation) configured(do func(context.Context, Config) error) func(context.Context) error {
	return func(ctx context.Context) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		c, err := ParseConfig(i.environ, filepath.Dir(self))
		if err != nil {
			return err
		}
		c.Logger = i.log
		return do(ctx, c)
	}
}

func (i invocation) uninstall(args []string) (func(context.Context) error, error) {
	flags := flag.NewFlagSet("calico-install uninstall", flag.ContinueOnError)
	data := flags.Bool("data", false, "remove the data of the etcd that the manifests run as well: all that Calico knows of the cluster")
	stay := flags.Bool("stay", false, "do it again until no pod is left, and then do nothing until told to end, as a DaemonSet's pod does")
	err := run.Parse(flags, nil, args, nil)
	return i.configured(func(ctx context.Context, c Config) error {
		if *stay {
			return uninstallAndStay(ctx, c, *data)
		}
		_, err := Uninstall(ctx, c, *data)
		return err
	}), err
}

func (i invocation) bootstrap(args []string) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		c, err := bootstrap.ParseConfig(args, i.environ, i.log)
		if err != nil {
			return err
		}
		return bootstrap.Run(ctx, c)
	}, nil
}

func (i invocation) revoke(args []string) (func(context.Context) error, error) {
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
		c, err := bootstrap.ParseConfig([]string{"sign"}, i.environ, i.log)
		if err != nil {
			return err
		}
		if *shared {
			return bootstrap.Retire(ctx, c)
		}
		return bootstrap.Revoke(ctx, c, flags.Arg(0), *undo)
	}, nil
}

func (i invocation) etcd(args []string) (func(context.Context) error, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("etcd %q: want the file to write\n%s", args, usage)
	}
	return func(context.Context) error {
		text, err := bootstrap.EtcdConfig(i.environ)
		if err != nil {
			return err
		}
		return os.WriteFile(args[0], text, 0o644)
	}, nil
}
