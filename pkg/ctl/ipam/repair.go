// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/store"
)

func newRepair(env *session.Env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "repair", Short: "Mend what check finds, as far as no address is concerned", Args: cobra.NoArgs,
		Long: `Mend what check finds: affinities of hosts to blocks, and what handles count. No address is freed or given out. Without --force it says
what it would do.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			snapshot, err := read(cmd, env)
			if err != nil {
				return err
			}
			s, err := env.Store(cmd.Context())
			if err != nil {
				return err
			}
			var errs []error
			for _, r := range invariants.Repairs(viewOf(snapshot), snapshot.Entries()) {
				what := "would be mended"
				switch {
				case r.Note:
					continue
				case r.Before:
					what = "goes with the one before"
				case r.Change.Empty():
					what = r.ByHand()
				case force:
					ctx, cancel := env.Bound(cmd.Context())
					_, err := s.Commit(ctx, r.Change)
					cancel()
					if conflict := new(store.ConflictError); errors.As(err, &conflict) {
						err = fmt.Errorf("%s changed meanwhile: repair again", conflict.Key.Path())
					}
					if err != nil {
						errs = append(errs, err)
						continue
					}
					what = "mended"
				}
				if _, err := fmt.Fprintf(env.Stdout, "%s: %s: %s\n", r.Key.Path(), r.Text, what); err != nil {
					return err
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "do it")
	return cmd
}
