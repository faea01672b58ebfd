// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/resource"
)

// NewSchema returns the command schema.
func NewSchema(env *session.Env) *cobra.Command {
	definitions := false
	cmd := &cobra.Command{
		Use: "schema KIND", Short: "Print the JSON schema of a kind's documents, for editors, without a cluster", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: completer(env, new(string)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case definitions && len(args) == 0:
				text, err := resource.Definitions()
				if err == nil {
					_, err = env.Stdout.Write(text)
				}
				return err
			case definitions, len(args) == 0:
				return session.Usagef("want %s KIND, or --definitions: see %[1]s --help", cmd.CommandPath())
			}
			kind, err := resource.Find(args[0])
			if err != nil {
				return session.Usagef("%w", err)
			}
			return output.JSON(env.Stdout, kind.Schema())
		},
	}
	cmd.Flags().BoolVar(&definitions, "definitions", false, "print the CustomResourceDefinitions of all kinds, for the Kubernetes API")
	return cmd
}
