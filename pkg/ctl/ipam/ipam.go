// SPDX-License-Identifier: Apache-2.0

// Package ipam implements calicoctl ipam, the commands on address management.
package ipam

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/ipam/usage"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// New returns the command ipam.
func New(env *session.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "ipam", Short: "Show, check, release and repair addresses"}
	cmd.AddCommand(newShow(env), newCheck(env), newRelease(env), newRepair(env), newConfigure(env), newMigrate(env), newGC(env))
	return cmd
}

// read reads everything about addresses.
func read(cmd *cobra.Command, env *session.Env) (model.Snapshot, error) {
	return env.Read(cmd.Context(), usage.Ranges()...)
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return a, session.Usagef("%.64q: want an IP address", text)
	}
	return a.Unmap(), nil
}

func newConfigure(env *session.Env) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use: "configure --strictaffinity=true|false", Short: "Set whether hosts may take addresses out of each other's blocks", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("strictaffinity") {
				return session.Usagef("want --strictaffinity=true or false")
			}
			kind, err := resource.Find("IPAMConfiguration")
			if err != nil {
				return err
			}
			s, err := env.Store(cmd.Context())
			if err != nil {
				return err
			}
			ctx, cancel := env.Bound(cmd.Context())
			defer cancel()
			outcome, err := client.New(s).Modify(ctx, kind, "", "default", func(r resource.Resource) (resource.Resource, error) {
				spec := *r.Spec.(*resource.IPAMConfiguration)
				spec.StrictAffinity = &strict
				r.Spec = &spec
				return r, nil
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(env.Stdout, "IPAMConfiguration default %s: strictAffinity %t\n", outcome, strict)
			return err
		},
	}
	cmd.Flags().BoolVar(&strict, "strictaffinity", false, "hosts take no address out of each other's blocks")
	return cmd
}

func newGC(env *session.Env) *cobra.Command {
	var resume bool
	cmd := &cobra.Command{
		Use: "gc [--resume]", Short: "Say whether garbage collection stands still, or let it go on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key := model.GarbageBrakeKey{}
			if !resume {
				snapshot, err := env.Read(cmd.Context(), model.KeyRange(key))
				if err != nil {
					return err
				}
				text := "garbage collection goes on"
				if e, ok := snapshot.Get(key); ok {
					brake, _ := e.Value.(model.GarbageBrake)
					text = fmt.Sprintf("garbage collection stands still since %s: %s", brake.Time.Format(time.DateTime), brake.Reason)
				}
				_, err = fmt.Fprintln(env.Stdout, text)
				return err
			}
			var brake model.GarbageBrake
			err := env.Transact(cmd.Context(), []model.Range{model.KeyRange(key)}, func(v *model.View) (change model.Change, err error) {
				brake, change, err = garbage.Resume(v)
				return change, err
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(env.Stdout, "garbage collection goes on:", brake.Reason)
			return err
		},
	}
	cmd.Flags().BoolVar(&resume, "resume", false, "let it go on: first see by calico-controllers -gc-dry-run what would go")
	return cmd
}
