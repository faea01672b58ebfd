// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

func dumpCommand(o *options) *cobra.Command {
	var revision int64
	var compact bool
	cmd := &cobra.Command{
		Use:   "dump [PREFIX]",
		Short: "Print what etcd holds, now or at an earlier revision",
		Args:  cobra.MaximumNArgs(1),
		Example: `  calico-lab dump
  calico-lab dump /calico/ipam/v2/assignment
  calico-lab dump --revision 7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			prefix := model.Root
			if len(args) == 1 {
				prefix = args[0]
			}
			r, err := l.RawAt(cmd.Context(), prefix, revision)
			if err != nil {
				return err
			}
			printKeys(cmd.OutOrStdout(), r, compact)
			return nil
		},
	}
	cmd.Flags().Int64Var(&revision, "revision", 0, "etcd revision to look at; 0 is now")
	cmd.Flags().BoolVar(&compact, "compact", false, "one line per key")
	return cmd
}

// printKeys prints each key and, JSON indented, its value.
func printKeys(w io.Writer, r lab.MemberRange, compact bool) {
	for _, k := range r.Keys {
		var pretty bytes.Buffer
		if compact || json.Indent(&pretty, k.Value, "  ", "  ") != nil {
			fmt.Fprintf(w, "%s = %s\n", k.Key, k.Value)
			continue
		}
		fmt.Fprintf(w, "%s  (revision %d)\n  %s\n", k.Key, k.Modified, pretty.Bytes())
	}
	fmt.Fprintf(w, "%d keys at revision %d\n", len(r.Keys), r.Revision)
}
