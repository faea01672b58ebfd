// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"fmt"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/resource"
)

// verb is a command that writes the content of files.
type verb struct {
	files
	diff, skip bool
	env        *session.Env
}

func (v *verb) command(use, short string, do func(*client.Client, context.Context, resource.Resource) (client.Outcome, error), skips func(error) bool) *cobra.Command {
	cmd := &cobra.Command{Use: use + " -f FILE", Short: short, Args: cobra.NoArgs}
	v.addFlags(cmd)
	writeFlags(cmd, v.env)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := v.read(cmd, v.env)
		if err != nil {
			return err
		}
		c, err := newClient(cmd, v.env)
		if err != nil {
			return err
		}
		if err := v.judge(cmd.Context(), c, all, do); err != nil {
			return err
		}
		return v.each(cmd.Context(), all, func(ctx context.Context, r resource.Resource) (client.Outcome, error) {
			if v.diff {
				return "", v.printDiff(ctx, c, r)
			}
			outcome, err := do(c, ctx, r)
			if v.skip && skips(err) {
				return "skipped", nil
			}
			return outcome, err
		})
	}
	return cmd
}

// judge finds documents that are wrong by themselves, before the first is written. What is stored may be just as wrong: a document
// that doesn't change it is accepted.
func (v *verb) judge(ctx context.Context, c *client.Client, all []resource.Resource, do func(*client.Client, context.Context, resource.Resource) (client.Outcome, error)) error {
	var errs []error
	for _, r := range all {
		err := resource.Check(r)
		if err == nil {
			continue
		}
		alone := *c
		alone.DryRun = true
		bound, cancel := v.env.Bound(ctx)
		_, refused := do(&alone, bound, r)
		cancel()
		switch session.Status(refused) {
		case session.StatusOK, session.StatusNotFound, session.StatusConflict: // accepted, or refused for another reason
		case session.StatusUnavailable:
			return refused
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// each calls do for each resource, and goes on after an error.
func (v *verb) each(ctx context.Context, all []resource.Resource, do func(context.Context, resource.Resource) (client.Outcome, error)) error {
	var errs []error
	for i, r := range all {
		if i > 0 {
			v.env.Progress("%d of %d done, now %s", i, len(all), r.Title())
		}
		bound, cancel := v.env.Bound(ctx)
		outcome, err := do(bound, r)
		cancel()
		if err != nil {
			var field *resource.FieldError
			if !errors.As(err, &field) && r.Place() != "" {
				err = fmt.Errorf("%s: %w", r.Place(), err)
			}
			errs = append(errs, err)
			if session.Status(err) == session.StatusUnavailable {
				break // the next will fail as well
			}
			continue
		}
		if outcome == "" {
			continue
		}
		warn(v.env, r)
		if _, err := fmt.Fprintf(v.env.Stdout, "%s %s%s\n", r.Title(), outcome, v.env.DryRunNote()); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// printDiff prints what apply would change, in the form that get prints.
func (v *verb) printDiff(ctx context.Context, c *client.Client, r resource.Resource) error {
	before, after, err := c.Preview(ctx, r)
	if err != nil {
		return err
	}
	var texts [2][]byte
	for i, s := range []*resource.Stored{before, after} {
		if s == nil {
			continue
		}
		s.Metadata.ResourceVersion = ""
		if texts[i], err = yaml.Marshal(s.Resource); err != nil {
			return err
		}
	}
	_, err = v.env.Stdout.Write(diff.Diff(r.Title()+" stored", texts[0], r.Title()+" in "+r.Place(), texts[1]))
	return err
}

func isExists(err error) bool {
	var exists *resource.ExistsError
	return errors.As(err, &exists)
}

// NewCreate returns the command create.
func NewCreate(env *session.Env) *cobra.Command {
	v := &verb{env: env}
	cmd := v.command("create", "Make resources that are not there yet", (*client.Client).Create, isExists)
	cmd.Flags().BoolVar(&v.skip, "skip-exists", false, "pass over those that are there")
	return cmd
}

// NewApply returns the command apply.
func NewApply(env *session.Env) *cobra.Command {
	v := &verb{env: env}
	cmd := v.command("apply", "Make resources, or change them to what the files say", (*client.Client).Apply, nil)
	cmd.Flags().BoolVar(&v.diff, "diff", false, "show what would change, and do nothing")
	return cmd
}

// NewReplace returns the command replace.
func NewReplace(env *session.Env) *cobra.Command {
	v := &verb{env: env}
	return v.command("replace", "Change resources that are there to what the files say", (*client.Client).Update, nil)
}

// NewDelete returns the command delete.
func NewDelete(env *session.Env) *cobra.Command {
	v := &verb{env: env}
	var at place
	var force bool
	cmd := &cobra.Command{
		Use: "delete (KIND NAME... | -f FILE)", Short: "Delete resources",
		ValidArgsFunction: completer(env, &at.namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := v.named(cmd, args, at)
			if err != nil {
				return err
			}
			c, err := newClient(cmd, env)
			if err != nil {
				return err
			}
			return v.each(cmd.Context(), all, func(ctx context.Context, r resource.Resource) (client.Outcome, error) {
				kind, err := resource.KindOf(r)
				if err != nil {
					return "", err
				}
				if force && kind.Name == "Node" {
					if err := takeAway(cmd.Context(), env, r.Metadata.Name); err != nil || env.DryRun {
						return client.Deleted, err
					}
					var cancel context.CancelFunc
					ctx, cancel = env.Bound(cmd.Context()) // that may have taken longer
					defer cancel()
				}
				if force && kind.Name == "WorkloadEndpoint" {
					if s, err := c.Get(ctx, kind, r.Metadata.Namespace, r.Metadata.Name); err == nil && isOrphan(s) {
						return client.Deleted, takeOrphan(ctx, env, s)
					}
				}
				err = c.Delete(ctx, kind, r.Metadata.Namespace, r.Metadata.Name, r.Metadata.ResourceVersion)
				if missing, ok := errors.AsType[*resource.NotFoundError](err); v.skip && ok {
					if missing.Meant() != nil {
						fmt.Fprintln(env.Stderr, "calicoctl: note:", missing)
					}
					return "skipped", nil
				}
				return client.Deleted, err
			})
		},
	}
	v.addFlags(cmd)
	writeFlags(cmd, env)
	cmd.Flags().BoolVar(&v.skip, "skip-not-exists", false, "pass over those that are not there")
	cmd.Flags().BoolVar(&force, "force", false, "a node that is gone for good: with its workloads, their addresses and its blocks; not while its agent lives. "+
		"A workload endpoint that names no container: with its addresses; not while it is up")
	at.addFlags(cmd)
	return cmd
}

// named returns the resources named by arguments or files.
func (v *verb) named(cmd *cobra.Command, args []string, at place) ([]resource.Resource, error) {
	switch {
	case len(v.names) > 0 && len(args) > 0:
		return nil, session.Usagef("want either KIND NAME or -f FILE")
	case len(v.names) > 0:
		return v.read(cmd, v.env)
	case len(args) < 2:
		return nil, session.Usagef("want KIND NAME, or -f FILE")
	}
	kind, err := at.kind(args[0])
	if err != nil {
		return nil, err
	}
	var all []resource.Resource
	switch {
	case !kind.Namespaced:
		at.namespace = ""
	case at.namespace == "":
		at.namespace = "default"
	}
	for _, name := range args[1:] {
		r := resource.Resource{Kind: kind.Name, Metadata: resource.Metadata{Name: name, Namespace: at.namespace}}
		if at.node != "" {
			r.Spec = &resource.HostEndpoint{Node: at.node}
		}
		all = append(all, r)
	}
	return all, nil
}

// NewValidate returns the command validate.
func NewValidate(env *session.Env) *cobra.Command {
	f := &files{}
	cmd := &cobra.Command{
		Use: "validate -f FILE", Short: "Check files without a cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := f.read(cmd, env)
			if err != nil {
				return err
			}
			var errs []error
			for _, r := range all {
				errs = append(errs, resource.Check(r))
			}
			if err := errors.Join(errs...); err != nil {
				return session.Usagef("%w", err)
			}
			_, err = fmt.Fprintf(env.Stdout, "%s in order\n", resource.Count(len(all), "resource"))
			return err
		},
	}
	f.addFlags(cmd)
	return cmd
}

// NewConvert returns the command convert.
func NewConvert(env *session.Env) *cobra.Command {
	f := &files{}
	var format string
	cmd := &cobra.Command{
		Use: "convert -f FILE", Short: "Print files, of apiVersion v1 as well, as projectcalico.org/v3, without a cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "yaml" && format != "json" {
				return session.Usagef("-o %.32q: want yaml or json: see %s --help", format, cmd.CommandPath())
			}
			all, err := f.read(cmd, env)
			if err != nil {
				return err
			}
			for i, r := range all {
				if err := resource.Check(r); err != nil {
					return session.Usagef("%w", err)
				}
				if format == "json" {
					err = output.JSON(env.Stdout, r)
				} else {
					if i > 0 {
						fmt.Fprintln(env.Stdout, "---")
					}
					err = output.YAML(env.Stdout, r)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.addFlags(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "yaml", "yaml or json")
	return cmd
}
