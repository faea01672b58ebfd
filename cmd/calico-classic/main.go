// SPDX-License-Identifier: Apache-2.0

// Command calico-classic has the roles of the APIs of 2014: see package classicd.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/calico-go/calico/pkg/classicd"
	"github.com/calico-go/calico/pkg/daemon/run"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

const usage = `usage: calico-classic felix | acl-manager | plugin [flags]; -help after one of them lists its flags
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	role, args := os.Args[1], os.Args[2:]
	d := run.Daemon{Name: "calico-classic " + role, Version: version, Prefix: "calico_classic"}
	switch role {
	case "felix":
		os.Exit(felix(d.Name, args))
	case "acl-manager":
		var cfg classicd.ManagerConfig
		d.Options, d.Health, d.Metrics = classicd.ManagerOptions(&cfg), "127.0.0.1:9096", "127.0.0.1:9093"
		d.Start = func(_ context.Context, env run.Env) (func(context.Context) error, error) {
			return classicd.Manager(cfg, env)
		}
	case "plugin":
		var cfg classicd.PluginConfig
		d.Options, d.Health, d.Metrics = classicd.PluginOptions(&cfg), "127.0.0.1:9097", "127.0.0.1:9092"
		d.Start = func(ctx context.Context, env run.Env) (func(context.Context) error, error) {
			return classicd.Plugin(ctx, cfg, env)
		}
	case "-version", "--version":
		fmt.Println("calico-classic", version)
		return
	case "-h", "-help", "--help":
		fmt.Print(usage)
		return
	default:
		fmt.Fprintf(os.Stderr, "calico-classic: there is no role %q\n%s", role, usage)
		os.Exit(2)
	}
	os.Exit(d.Main(args, os.Environ()))
}

// felix is an agent, which has health, metrics and the log as its parameters say.
func felix(name string, args []string) int {
	var cfg classicd.FelixConfig
	hostname, _ := os.Hostname() // it matters only where NODENAME isn't set, and is refused there
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	err := run.Parse(flags, classicd.FelixOptions(&cfg, hostname), args, os.Environ())
	return run.Main(name, version, err, func(ctx context.Context) error {
		cfg.Agent.FromProcess(version, os.Environ())
		return classicd.Felix(ctx, cfg)
	})
}
