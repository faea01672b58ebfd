// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/resource"
)

func newAdopt(env *session.Env) *cobra.Command {
	var back bool
	cmd := &cobra.Command{
		Use: "adopt", Short: "Move calicoctl's resources into the Kubernetes API, or back", Args: cobra.NoArgs,
		Long: `Print the resources that calicoctl wrote, for kubectl. Objects that say the same as etcd adopt it, and nothing else changes:

    calicoctl datastore adopt | kubectl apply -f -

What no object can say is named, left out, and makes the exit status 1: it stays calicoctl's. With --back, what objects of the
Kubernetes API made becomes calicoctl's, and stays when the objects are deleted.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if back {
				return takeBack(cmd.Context(), env)
			}
			return printOwn(cmd.Context(), env)
		},
	}
	cmd.Flags().BoolVar(&env.DryRun, "dry-run", false, "with --back: say what would be taken, and do nothing")
	cmd.Flags().BoolVar(&back, "back", false, "take what objects of the Kubernetes API made")
	return cmd
}

// eachCustom calls do for each resource of the kinds that the Kubernetes API has.
func eachCustom(ctx context.Context, env *session.Env, do func(*client.Client, resource.Stored) error) error {
	s, err := env.Store(ctx)
	if err != nil {
		return err
	}
	for _, kind := range resource.CustomKinds() {
		all, _, err := client.New(s).List(ctx, kind, "")
		if err != nil {
			return err
		}
		for _, found := range all {
			if !found.Entries[0].Exists() || kubepolicy.Derived(found.Entries[0]) {
				continue
			}
			if err := do(client.New(s), found); err != nil {
				return err
			}
		}
	}
	return nil
}

// printOwn prints what calicoctl wrote.
func printOwn(ctx context.Context, env *session.Env) error {
	left := 0
	err := eachCustom(ctx, env, func(c *client.Client, s resource.Stored) error {
		if s.OwnedByAPI() {
			return nil
		}
		r := s.Resource
		r.Metadata.ResourceVersion = ""
		c.By = resource.By{UID: "an object", TakeOver: s.TakenOver()}
		err := s.Err
		if bad := validation.IsDNS1123Subdomain(r.Metadata.Name); bad != nil {
			err = errors.New("metadata.name: " + bad[0])
		}
		if err == nil {
			_, _, err = c.Preview(ctx, r)
		}
		if err != nil {
			left++
			_, err = fmt.Fprintf(env.Stderr, "calicoctl: left out: %s: %v\n", s.Title(), err)
			return err
		}
		if c.By.TakeOver {
			r.Metadata.Annotations = maps.Clone(r.Metadata.Annotations)
			if r.Metadata.Annotations == nil {
				r.Metadata.Annotations = map[string]string{}
			}
			r.Metadata.Annotations["projectcalico.org/take-over"] = "true"
		}
		if _, err := fmt.Fprintln(env.Stdout, "---"); err != nil {
			return err
		}
		return output.YAML(env.Stdout, r)
	})
	if err == nil && left > 0 {
		err = fmt.Errorf("%s left out", resource.Count(left, "resource"))
	}
	return err
}

// takeBack makes what objects made calicoctl's.
func takeBack(ctx context.Context, env *session.Env) error {
	var failed error
	err := eachCustom(ctx, env, func(c *client.Client, s resource.Stored) error {
		if !s.OwnedByAPI() {
			return nil
		}
		c.DryRun, c.By.TakeOver = env.DryRun, true
		if _, err := c.Apply(ctx, s.Resource); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.Title(), err))
			return nil
		}
		_, err := fmt.Fprintf(env.Stdout, "%s is calicoctl's: its object has no effect any more, delete it%s\n", s.Title(), env.DryRunNote())
		return err
	})
	return errors.Join(err, failed)
}
