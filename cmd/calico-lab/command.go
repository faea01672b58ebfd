// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

// exitError ends the program with the exit status of a command that it ran.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// options are the options of every subcommand.
type options struct {
	name string
}

// run returns a command's function that calls fn with the lab named by the options.
func (o *options) run(fn func(cmd *cobra.Command, l *lab.Lab, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		l, err := lab.Open(o.name)
		if err != nil {
			return err
		}
		defer l.Close()
		return fn(cmd, l, args)
	}
}

func command(version string) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "calico-lab",
		Short: "A whole Calico network on one machine",
		Long: `calico-lab makes a Calico network on this machine: an etcd, virtual hosts that
are network namespaces on one wire or in racks, the node agent in each, and pods
that are namespaces wired by the CNI plugins. The machine's own network is not touched.

It needs root. Without root, a shell in a user namespace does as well:

  unshare -Urnm sh -c 'mount -t tmpfs run /run && exec sh'`,
		Example: `  calico-lab up --hosts a,b
  calico-lab pod add web --host a
  calico-lab pod add db --host a
  calico-lab exec web -- sh
  calico-lab status
  calico-lab host kill a
  calico-lab down`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if o.name == "" {
				return errors.New("--name: want a name, or leave it out")
			}
			return nil
		},
	}
	root.SetVersionTemplate("calico-lab {{.Version}}\n")
	root.PersistentFlags().StringVar(&o.name, "name", "default", "name of the lab; several can be up at once")
	root.AddCommand(upCommand(&o), downCommand(&o), statusCommand(&o), hostCommand(&o), podCommand(&o), vmCommand(&o), execCommand(&o), pingCommand(&o),
		cniCommand(&o), dumpCommand(&o), agentCommand(&o), partitionCommand(&o), healCommand(&o), lossCommand(&o), demoCommand(&o), etcdCommand())
	sayUsage(root)
	return root
}

// sayUsage makes commands that get too few or too many arguments print their usage.
func sayUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fmt.Errorf("%w: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		sayUsage(sub)
	}
}
