// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

func agentCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Start and stop the agent of a host"}
	add := func(use, short string, fn func(*cobra.Command, *lab.Host) error) {
		cmd.AddCommand(&cobra.Command{
			Use: use + " HOST", Short: short, Args: cobra.ExactArgs(1),
			RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
				h, err := l.FindHost(args[0])
				if err != nil {
					return err
				}
				err = fn(cmd, h)
				if errors.Is(err, os.ErrProcessDone) {
					return fmt.Errorf("the agent of host %s does not run: %s", args[0], o.hint("agent start "+args[0]))
				}
				return err
			}),
		})
	}
	add("start", "Start the agent and wait until it is ready", func(cmd *cobra.Command, h *lab.Host) error {
		return h.Agent().Start(cmd.Context())
	})
	add("stop", "Ask the agent to end", func(_ *cobra.Command, h *lab.Host) error { return h.Agent().Stop() })
	add("kill", "Kill the agent at once", func(_ *cobra.Command, h *lab.Host) error { return h.Agent().Kill() })
	return cmd
}
