// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
)

func newMigrate(env *session.Env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Move what older versions stored elsewhere to where it belongs", Args: cobra.NoArgs,
		Long: `Move what older versions stored elsewhere (handles of addresses, BGP peers, the mesh's switch) to where it belongs, each in one
transaction. Values in an older form are read as they are, and written in today's when they next change.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := env.Store(cmd.Context())
			if err != nil {
				return err
			}
			snapshot, err := env.Read(cmd.Context(), model.Range{Prefix: model.Root, KeysOnly: true})
			if err != nil {
				return err
			}
			moved := 0
			for _, e := range snapshot.Entries() {
				to := canonical(e.Key)
				if to == nil {
					continue
				}
				env.Progress("%d moved", moved)
				ctx, cancel := env.Bound(cmd.Context())
				_, err := s.Transact(ctx, []model.Range{model.KeyRange(e.Key), model.KeyRange(to)}, func(v *model.View) (model.Change, error) {
					if dryRun {
						return model.Change{}, nil
					}
					return move(v, e.Key, to)
				})
				cancel()
				if err != nil {
					return err
				}
				moved++
				note := ""
				if dryRun {
					note = " (dry run)"
				}
				if _, err := fmt.Fprintf(env.Stdout, "%s moved to %s%s\n", e.Path, to.Path(), note); err != nil {
					return err
				}
			}
			if moved == 0 {
				_, err = fmt.Fprintln(env.Stdout, "nothing is stored as older versions did")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be moved, and do nothing")
	return cmd
}

// canonical is where the value of a key of an older version belongs, nil = where it is.
func canonical(k model.Key) model.Key {
	switch k := k.(type) {
	case model.HandleKey:
		if k.Legacy {
			return model.HandleKey{ID: k.ID}
		}
	case model.BGPMeshKey:
		if k.Legacy {
			return model.BGPMeshKey{}
		}
	case model.BGPPeerKey:
		if k.Legacy {
			k.Legacy = false
			return k
		}
	}
	return nil
}

// move moves a value, unless there is one: that one counts everywhere. Of a handle both do, the canonical one where both name a
// block.
func move(v *model.View, from, to model.Key) (model.Change, error) {
	old, there := v.Get(from), v.Get(to)
	for _, e := range []model.Entry{old, there} {
		if e.Err != nil {
			return model.Change{}, fmt.Errorf("%s: %w: mend or delete it, then migrate again", e.Path, e.Err)
		}
	}
	change := model.Change{Compares: []model.Compare{v.Compare(from), v.Compare(to)}}
	if !old.Exists() {
		return change, nil
	}
	change.Deletes = []model.Key{from}
	value := old.Value
	if handle, ok := value.(model.Handle); ok && there.Exists() {
		handle.Blocks = maps.Clone(handle.Blocks)
		maps.Copy(handle.Blocks, there.Value.(model.Handle).Blocks)
		value = handle
	} else if there.Exists() {
		return change, nil
	}
	change.Puts = []model.Put{{Key: to, Value: value}}
	return change, nil
}
