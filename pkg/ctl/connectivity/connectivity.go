// SPDX-License-Identifier: Apache-2.0

// Package connectivity implements the command of calicoctl that tries whether a cluster's network works.
package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
)

// New returns the command connectivity.
func New(env *session.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "connectivity", Short: "Try whether the network of a Kubernetes cluster works"}
	cmd.AddCommand(newTest(env), newServe(), newProbe(env))
	return cmd
}

// options are the flags of the test.
type options struct {
	kubeconfig, image, outside string
	nodes                      []string
	keep                       bool
}

func newTest(env *session.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "test", Short: "Try pods, services, node ports, hosts, DNS, MTU and policy with pods on two nodes", Args: cobra.NoArgs,
		Long: `Try whether the network of a Kubernetes cluster works, with pods on two nodes, or on one where there is no other: whether pods
reach pods, services, node ports and hosts on their own node and on the other, and DNS; whether packets as large as the pods' MTU arrive;
whether NetworkPolicies deny and allow; each with all families of addresses that the pods have. For each failure it says what to do.

Pods run in the namespace ` + namespace + `, which is deleted at the end, and before where one was left. Their image is that of the DaemonSet
calico-node. Needs no etcd, but a kubeconfig whose user may read nodes, daemonsets and services, and write namespaces and what is in them.
The exit status is 1 where something fails.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for i, n := range o.nodes {
				if len(o.nodes) > 2 || slices.Contains(o.nodes[:i], n) {
					return session.Usagef("--node: want one node, or two different ones")
				}
			}
			if _, err := netip.ParseAddrPort(o.outside); err != nil && o.outside != "" {
				return session.Usagef("--outside %q: want ADDRESS:PORT", o.outside)
			}
			client, err := env.Kubernetes(o.kubeconfig)
			if err != nil {
				return err
			}
			defer client.Close()
			r := &run{env: env, client: client}
			all, err := r.run(cmd.Context(), o)
			switch _, unreached := errors.AsType[*url.Error](err); {
			case all != nil: // err is of what is left behind
				return errors.Join(report(env, all), err)
			case cmd.Context().Err() != nil:
				return fmt.Errorf("interrupted: %w", err)
			case unreached:
				return &session.StatusError{Status: session.StatusUnavailable, Err: err}
			}
			return err
		},
	}
	f := cmd.Flags()
	session.KubeconfigFlag(f, &o.kubeconfig)
	f.StringArrayVar(&o.nodes, "node", nil, "node to test on, at most two (default two that are ready and take pods)")
	f.StringVar(&o.image, "image", "", "image that has calicoctl (default that of the DaemonSet calico-node)")
	f.StringVar(&o.outside, "outside", "", "ADDRESS:PORT outside of the cluster that accepts TCP connections of pods")
	f.BoolVar(&o.keep, "keep", false, "leave the namespace "+namespace+" with its pods")
	return cmd
}

// report prints the table and what to do.
func report(env *session.Env, all []outcome) error {
	table, todo, failed := judge(all)
	if err := output.Table(env.Stdout, []string{"TEST", "FAMILY", "FROM", "TO", "RESULT"}, table); err != nil || failed == 0 {
		return err
	}
	for _, line := range todo {
		fmt.Fprintln(env.Stdout, "TO DO:", line)
	}
	return fmt.Errorf("failed: %d of %d", failed, len(all))
}

// newServe and newProbe are what the pods run.
func newServe() *cobra.Command {
	var port int
	var name string
	cmd := &cobra.Command{
		Use: "serve", Short: "Answer the probes of a test", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), port, name) },
	}
	cmd.Flags().IntVar(&port, "port", serverPort, "TCP and UDP port")
	cmd.Flags().StringVar(&name, "name", "", "what to answer")
	return cmd
}

func newProbe(env *session.Env) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use: "probe PROBES", Short: "Make the probes of a test, a list in JSON, and print the outcomes", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := parseProbes(args[0])
			if err != nil {
				return session.Usagef("probes: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			return runProbes(ctx, all, env.Stdout)
		},
	}
	cmd.Flags().DurationVar(&patience, "for", 20*time.Second, "how long services and policies may take to be programmed")
	return cmd
}
