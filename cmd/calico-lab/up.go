// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

func upCommand(o *options) *cobra.Command {
	cfg := lab.Config{Background: true}
	var pools []string
	var network network
	var cluster bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make a lab, which runs until `calico-lab down`",
		Long: `up makes a lab in the background: etcd, the hosts, and an agent on each. What
labs that crashed have left is removed first. Interrupted, it leaves nothing.

The hosts are on one wire, or in racks: each has subnets of its own and a router, which
has routes to the other racks and to etcd, and none to pods. So pods of different
racks use VXLAN; with --vxlan never they need BGP with the routers.

With --hostile the world isn't Calico's alone: other firewalls, hardened hosts, and wires that
drop what they don't know. Pools use VXLAN then, and the agents try the path of pods' packets.

With --classic the hosts have a Felix of the APIs of 2014 each, instead of the agent. A
plugin tells them of the workload endpoints in etcd, and an ACL manager of the profiles.

With --kubernetes it makes another kind of lab, in the foreground: a Kubernetes cluster
of two nodes on which k8s-manifests/calico.yaml is applied, and a shell with kubectl. It
runs in a clone of Calico, after make isolate tools kubernetes images, as root.`,
		Example: `  calico-lab up
  calico-lab up --hosts 3
  calico-lab up --racks 2
  calico-lab up --racks 2 --hostile
  calico-lab up --kubernetes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cluster {
				return upKubernetes(cmd.Context(), cmd.ErrOrStderr())
			}
			network.hostile = cfg.Hostile
			if cfg.Classic && network.hosts == nil {
				network.hosts = []string{"3"}
			}
			if err := network.apply(&cfg); err != nil {
				return err
			}
			cfg.Name, cfg.Log = o.name, cmd.ErrOrStderr()
			for _, text := range pools {
				cidr, err := netip.ParsePrefix(text)
				if err != nil {
					return fmt.Errorf("--pools %s: want CIDRs such as 10.1.0.0/16,fd00:1::/64: %w", text, err)
				}
				cfg.Pools = append(cfg.Pools, cidr)
			}
			start := time.Now()
			l, err := lab.Start(cmd.Context(), cfg)
			if errors.Is(err, context.Canceled) {
				return errors.New("interrupted; nothing is left of the lab")
			}
			if err != nil {
				return err
			}
			defer l.Leave()
			fmt.Fprintf(cmd.ErrOrStderr(), "lab %s is up after %v; next: %s\n", l.Name(),
				time.Since(start).Round(10*time.Millisecond), o.hint("pod add web --host "+l.Hosts()[0].Name()))
			return nil
		},
	}
	f := cmd.Flags()
	network.flags(cmd)
	f.BoolVar(&cluster, "kubernetes", false, "a Kubernetes cluster and a shell beside it, instead of hosts")
	f.IntVar(&cfg.EtcdMembers, "etcd", 1, "number of etcd members, 1 or 3")
	f.BoolVar(&cfg.TLS, "tls", false, "etcd and its clients use certificates")
	f.BoolVar(&cfg.Auth, "auth", false, "etcd asks for a user and a password")
	f.BoolVar(&cfg.Hostile, "hostile", false, "hosts with hardened sysctls, a FORWARD that drops, kube-proxy's rules and a restless firewall; wires that drop pods' packets without encapsulation")
	f.BoolVar(&cfg.Classic, "classic", false, "the system of 2014: three hosts with calico-classic felix, a plugin and an ACL manager")
	f.BoolVar(&cfg.NoAgent, "no-agent", false, "hosts without the node agent")
	f.StringSliceVar(&pools, "pools", nil, "IP pools (default 192.168.0.0/16 and fd80:24e2:f998:72d6::/64)")
	f.StringSliceVar(&cfg.CNIPath, "cni-path", nil, "more directories with CNI plugins")
	return cmd
}

func downCommand(o *options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End a lab and remove everything that it made",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names := []string{o.name}
			if all {
				var err error
				if names, err = lab.Names(); err != nil {
					return err
				}
			}
			var errs []error
			for _, name := range names {
				err := lab.Remove(name)
				switch {
				case errors.Is(err, os.ErrNotExist):
					fmt.Fprintf(cmd.ErrOrStderr(), "lab %s is not up\n", name)
				case err == nil:
					fmt.Fprintf(cmd.ErrOrStderr(), "lab %s is gone\n", name)
				default:
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every lab on this machine")
	return cmd
}

// hint returns a command line to copy.
func (o *options) hint(args string) string {
	if o.name == "default" {
		return "calico-lab " + args
	}
	return "calico-lab --name " + o.name + " " + args
}
