// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"context"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

func newMigrate(env *session.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Move or delete what older versions left", Args: cobra.NoArgs,
		Long: `Move what older versions stored elsewhere (handles of addresses, BGP peers, the mesh's switch) to where it belongs, each in one
transaction. Values in an older form are read as they are, and written in today's when they next change.

Policies that older controllers for Kubernetes left are deleted where calico-controllers has written its own in their place, as
NetworkPolicies deny nothing by default beside them: <namespace>.<name>, with the order and selector that older controllers gave it,
where knp.<namespace>.<name> is there, and k8s-policy-no-match where any such policy is. Older controllers that still run write
theirs again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			snapshot, err := env.Read(cmd.Context(), model.Range{Prefix: model.Root, KeysOnly: true})
			if err != nil {
				return err
			}
			removed, err := removeOlder(cmd.Context(), env)
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
				err := env.Transact(cmd.Context(), []model.Range{model.KeyRange(e.Key), model.KeyRange(to)}, func(v *model.View) (model.Change, error) {
					return move(v, e.Key, to)
				})
				if err != nil {
					return err
				}
				moved++
				if _, err := fmt.Fprintf(env.Stdout, "%s moved to %s%s\n", e.Path, to.Path(), env.DryRunNote()); err != nil {
					return err
				}
			}
			if moved+removed == 0 {
				_, err = fmt.Fprintln(env.Stdout, "nothing is stored as older versions did")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&env.DryRun, "dry-run", false, "say what would be moved and deleted, and do nothing")
	return cmd
}

// removeOlder deletes policies of older controllers that have a successor, and returns how many.
func removeOlder(ctx context.Context, env *session.Env) (removed int, err error) {
	snapshot, err := env.Read(ctx, model.PrefixRange(model.PolicyPrefix()))
	if err != nil {
		return 0, err
	}
	successors := kubepolicy.Successors{}
	for _, e := range snapshot.Entries() {
		if key, is := e.Key.(model.PolicyKey); is {
			successors.Set(key, true)
		}
	}
	for _, e := range snapshot.Entries() {
		key, is := e.Key.(model.PolicyKey)
		if !is || !older(e, key) {
			continue
		}
		successor, there := successors.Of(key)
		if !there {
			continue
		}
		if there, err = removeBeside(ctx, env, key, successor); err != nil {
			return removed, fmt.Errorf("delete %s: %w", e.Path, err)
		}
		if !there {
			continue
		}
		removed++
		if _, err := fmt.Fprintf(env.Stdout, "%s deleted: older controllers left it, and %s is in its place%s\n", e.Path, successor.Path(), env.DryRunNote()); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// removeBeside deletes a policy of older controllers if its successor exists, and reports whether it did.
func removeBeside(ctx context.Context, env *session.Env, key, successor model.PolicyKey) (done bool, err error) {
	err = env.Transact(ctx, []model.Range{model.KeyRange(key), model.KeyRange(successor)}, func(v *model.View) (model.Change, error) {
		if done = older(v.Get(key), key) && v.Get(successor).Exists(); !done {
			return model.Change{}, nil
		}
		return model.Change{Compares: []model.Compare{v.Compare(key), v.Compare(successor)}, Deletes: []model.Key{key}}, nil
	})
	return done, err
}

// older reports whether the entry is a policy made by older controllers, at the path that a transaction compares.
func older(e model.Entry, key model.PolicyKey) bool {
	p, ok := e.Value.(model.Policy)
	return ok && e.Err == nil && e.Path == key.Path() && kubepolicy.Older(key, p)
}

// canonical returns the key to which the value of an older version's key belongs, nil if k is current.
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

// move moves a value, unless the target has one: then the target's counts. Handles are merged; for a block that both name, the
// target's counts.
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
