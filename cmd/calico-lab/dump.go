// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
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
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			if revision < 0 {
				return fmt.Errorf("--revision %d: want a revision of etcd's, or 0 for now", revision)
			}
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
		}),
	}
	cmd.Flags().Int64Var(&revision, "revision", 0, "etcd revision to look at; 0 is now")
	cmd.Flags().BoolVar(&compact, "compact", false, "one line per key")
	return cmd
}

// printKeys prints each key with its value as indented JSON.
func printKeys(w io.Writer, r lab.MemberRange, compact bool) {
	for _, k := range r.Keys {
		var pretty bytes.Buffer
		if compact || json.Indent(&pretty, k.Value, "  ", "  ") != nil {
			fmt.Fprintf(w, "%s = %s\n", k.Key, k.Value)
			continue
		}
		fmt.Fprintf(w, "%s  (revision %d)\n  %s\n", k.Key, k.Modified, fold(pretty.String()))
	}
	fmt.Fprintf(w, "%d keys at revision %d\n", len(r.Keys), r.Revision)
}

// foldWidth is the maximum width of a folded line.
const foldWidth = 100

// fold joins the numbers and nulls of a list, which indented JSON puts on separate lines: a block has 64 of them twice.
func fold(indented string) string {
	var out strings.Builder
	width, open := 0, false // of the current folded line
	for line := range strings.Lines(indented) {
		text := strings.TrimSpace(line)
		if !inList(text) {
			if open {
				out.WriteByte('\n')
			}
			open = false
			out.WriteString(line)
			continue
		}
		switch {
		case !open:
			open, width = true, len(line)
			out.WriteString(strings.TrimRight(line, "\n"))
			continue
		case width+1+len(text) > foldWidth:
			out.WriteByte('\n')
			width = strings.Index(line, text)
			out.WriteString(line[:width])
		default:
			out.WriteByte(' ')
			width++
		}
		width += len(text)
		out.WriteString(text)
	}
	return out.String()
}

// inList reports whether a line of indented JSON is a number or null in a list.
func inList(text string) bool {
	text = strings.TrimSuffix(text, ",")
	return text != "" && (text == "null" || strings.Trim(text, "0123456789") == "")
}
