// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/resource"
)

// NewConfig returns the command config, as in calicoctl 1.
func NewConfig(env *session.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Set what calicoctl 1 called so: use patch bgpconfiguration instead"}
	cmd.AddCommand(&cobra.Command{
		Use: "set NAME VALUE", Short: "Set nodeToNodeMesh (on, off), asNumber or logLevel", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, patch := "BGPConfiguration", ""
			switch args[0] {
			case "nodeToNodeMesh":
				mesh, ok := map[string]bool{"on": true, "off": false}[args[1]]
				if !ok {
					return session.Usagef("nodeToNodeMesh %q: want on or off", args[1])
				}
				patch = fmt.Sprintf(`{"spec":{"nodeToNodeMeshEnabled":%t}}`, mesh)
			case "asNumber":
				patch = fmt.Sprintf(`{"spec":{"asNumber":%q}}`, args[1])
			case "logLevel":
				kind, patch = "FelixConfiguration", fmt.Sprintf(`{"spec":{"logSeverityScreen":%q}}`, args[1])
			default:
				return session.Usagef("%q: want nodeToNodeMesh, asNumber or logLevel", args[0])
			}
			return new(place).modify(cmd, env, kind, "default", func(_ *resource.Kind, r resource.Resource) (resource.Resource, error) {
				return resource.Patched(r, []byte(patch))
			})
		},
	})
	return cmd
}
