// SPDX-License-Identifier: Apache-2.0

// Package datastore implements calicoctl datastore, the commands on all data at once: export, import, lock, unlock, and the
// migration of older keys.
package datastore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// New returns the command datastore. Its subcommands are also those of its subcommand migrate, as in calicoctl 3.
func New(env *session.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "datastore", Short: "Export, import, adopt, lock or migrate all data"}
	subcommands := []func(*session.Env) *cobra.Command{newExport, newImport, newLock, newUnlock}
	migrate := newMigrate(env)
	for _, sub := range subcommands {
		cmd.AddCommand(sub(env))
		migrate.AddCommand(sub(env))
	}
	cmd.AddCommand(migrate, newAdopt(env))
	return cmd
}

func newExport(env *session.Env) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "export", Short: "Print all data, for import", Args: cobra.NoArgs,
		Long: `Print all data as of one revision of etcd, one key a line, for import.

What agents report, and what hangs on a lease, is left out: it is written anew. What this version can't read is named, left
out, and makes the exit status 1.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			snapshot, err := env.Read(cmd.Context(), model.PrefixRange(model.Root))
			if err != nil {
				return err
			}
			records, left := recordsOf(snapshot)
			for _, err := range left {
				fmt.Fprintln(env.Stderr, "calicoctl: left out:", err)
			}
			if err := write(env, to, func(w io.Writer) error { return dump(w, snapshot.Revision, records) }); err != nil {
				return err
			}
			if len(left) > 0 {
				return fmt.Errorf("%s left out of the export", resource.Count(len(left), "key"))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&to, "filename", "f", "-", "file to write, readable by its owner alone; - = standard output")
	return cmd
}

// write lets fn write to standard output, or to a file that gets its name only once it is complete.
func write(env *session.Env, name string, fn func(io.Writer) error) error {
	if name == "-" {
		return fn(env.Stdout)
	}
	f, err := os.OpenFile(name+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(fn(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func newLock(env *session.Env) *cobra.Command {
	return &cobra.Command{
		Use: "lock", Short: "Have plugins and agents change nothing", Args: cobra.NoArgs,
		Long: `Have plugins and agents change nothing until unlock: no pod starts, and those that run keep their addresses, routes and
policies.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return setReady(cmd.Context(), env, false) },
	}
}

func newUnlock(env *session.Env) *cobra.Command {
	return &cobra.Command{
		Use: "unlock", Short: "End what lock, or an import that was cut off, began", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return setReady(cmd.Context(), env, true) },
	}
}

func setReady(ctx context.Context, env *session.Env, ready bool) error {
	if err := putReady(ctx, env, ready); err != nil {
		return err
	}
	text := "the datastore is locked: calicoctl datastore unlock ends that\n"
	if ready {
		text = "the datastore is unlocked\n"
	}
	_, err := io.WriteString(env.Stdout, text)
	return err
}

// putReady writes whether plugins, agents and controllers may change what etcd holds.
func putReady(ctx context.Context, env *session.Env, ready bool) error {
	key := model.ReadyKey{}
	err := env.Transact(ctx, []model.Range{model.KeyRange(key)}, func(v *model.View) (model.Change, error) {
		if v.Get(key).Value == model.Ready(ready) {
			return model.Change{}, nil
		}
		return model.Change{Compares: []model.Compare{v.Compare(key)}, Puts: []model.Put{{Key: key, Value: model.Ready(ready)}}}, nil
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", key.Path(), err)
	}
	return nil
}
