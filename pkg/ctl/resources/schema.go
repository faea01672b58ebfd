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
	return &cobra.Command{
		Use: "schema KIND", Short: "Print the JSON schema of a kind's documents, for editors, without a cluster", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completer(env, new(string)),
		RunE: func(_ *cobra.Command, args []string) error {
			kind, err := resource.Find(args[0])
			if err != nil {
				return session.Usagef("%w", err)
			}
			return output.JSON(env.Stdout, kind.Schema())
		},
	}
}
