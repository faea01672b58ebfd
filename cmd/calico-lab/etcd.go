// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/member"
)

// etcdCommand runs one etcd member. It is started by the lab, not by people.
func etcdCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "etcd FILE",
		Short:  "Run one etcd member, as the lab does",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			var cfg lab.MemberConfig
			if err := json.Unmarshal(data, &cfg); err != nil {
				return fmt.Errorf("member configuration %s: %w", args[0], err)
			}
			return member.Run(cmd.Context(), cfg)
		},
	}
}
