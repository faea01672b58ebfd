// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/resource"
)

// get holds the options of the command get.
type get struct {
	env              *session.Env
	at               place
	format, selector string
	version          string          // of the documents that are printed
	picks            labels.Selector // what selector says
	all, export      bool
	watch            bool
}

// NewGet returns the command get.
func NewGet(env *session.Env) *cobra.Command {
	g := &get{env: env}
	cmd := &cobra.Command{
		Use: "get KIND [NAME...]", Short: "Print resources", Args: cobra.MinimumNArgs(1),
		Long: "get prints resources of one kind: " + strings.Join(resource.KindNames(), ", ") + ".\n\n" +
			"Kinds may be written in any case, in the plural, and by short names, as ippool, gnp, np, hep, wep.",
		ValidArgsFunction: completer(env, &g.at.namespace),
		RunE:              func(cmd *cobra.Command, args []string) error { return g.run(cmd, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&g.format, "output", "o", "table", "table, wide, name, json, yaml, go-template=..., jsonpath=... or custom-columns=HEAD:.path,...")
	f.StringVarP(&g.selector, "selector", "l", "", "labels of the resources, as kubectl has it: a=b, a!=b, a in (b,c), a notin (b), a, !a, joined by commas")
	f.StringVar(&g.version, "api-version", resource.APIVersion, "version of the documents; v1: with -o yaml or json, as calicoctl 1 has them")
	g.at.addFlags(cmd)
	f.BoolVarP(&g.all, "all-namespaces", "A", false, "of all namespaces")
	f.BoolVar(&g.export, "export", false, "without what belongs to this cluster, to be applied to another")
	f.BoolVarP(&g.watch, "watch", "w", false, "go on with each change")
	return cmd
}

// completer completes kinds and the names of resources.
func completer(env *session.Env, namespace *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if len(args) == 0 {
			for _, k := range resource.KindNames() {
				names = append(names, strings.ToLower(k))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}
		kind, err := resource.Find(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if c, err := newClient(cmd, env); err == nil {
			ctx, cancel := env.Bound(cmd.Context())
			defer cancel()
			found, _, _ := c.List(ctx, kind, *namespace) // if they can't be read, there are no names to offer
			for _, s := range found {
				names = append(names, s.Metadata.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func (g *get) run(cmd *cobra.Command, args []string) error {
	kind, err := g.at.kind(args[0])
	if err != nil {
		return err
	}
	if g.picks, err = labels.Parse(g.selector); err != nil {
		return session.Usagef("-l %s: %w", g.selector, err)
	}
	switch {
	case g.selector == "":
	case len(args) > 1:
		return session.Usagef("want either NAME or -l SELECTOR")
	case kind.Plain && !kind.Labelled:
		return session.Usagef("-l %s: labels of %s are not kept", g.selector, resource.A(kind.Name))
	}
	switch g.version {
	case resource.APIVersion, "v3":
	case "v1":
		if err := kind.MayOlder(); err != nil {
			return session.Usagef("%w", err)
		}
		if g.watch || g.format != "yaml" && g.format != "json" {
			return session.Usagef("--api-version v1: want -o yaml or json, and no --watch")
		}
	default:
		return session.Usagef("--api-version %s: want v1 or v3", g.version)
	}
	print, err := output.Parse(g.format)
	if err != nil {
		return session.Usagef("%w", err)
	}
	c, err := newClient(cmd, g.env)
	if err != nil {
		return err
	}
	namespace := g.at.namespace
	if kind.Namespaced && namespace == "" && !g.all {
		namespace = "default"
	}
	if g.watch {
		return g.follow(cmd.Context(), c, kind, namespace, args[1:], print)
	}
	ctx, cancel := g.env.Bound(cmd.Context())
	defer cancel()
	of := namespace
	if len(args) > 1 {
		of = "" // a name may mean a resource elsewhere
	}
	found, _, err := c.List(ctx, kind, of)
	if err != nil {
		return err
	}
	var bad error
	if len(args) > 1 {
		var named []resource.Stored
		for _, name := range args[1:] {
			these, err := g.resolve(kind, found, namespace, name)
			if err != nil {
				return err
			}
			named = append(named, these...)
		}
		found = named
	}
	var list []resource.Resource
	for _, s := range found {
		if s.Err != nil {
			fmt.Fprintf(g.env.Stderr, "calicoctl: %s is invalid: %v\n", s.Title(), s.Err)
			bad = &session.StatusError{Status: session.StatusFailed, Err: fmt.Errorf("not all of it can be shown")}
			continue
		}
		if g.picks.Matches(labels.Set(s.Metadata.Labels)) {
			list = append(list, g.exported(s.Resource))
		}
	}
	one := len(args) == 2
	if g.version == "v1" {
		return cmp.Or(g.printOlder(list, one), bad)
	}
	if err := print(g.env.Stdout, kind, list, one, true); err != nil {
		return err
	}
	return bad
}

// printOlder prints resources as documents of v1, and says what they lack.
func (g *get) printOlder(list []resource.Resource, one bool) error {
	documents, left := []any{}, 0
	for _, r := range list {
		older, err := r.Older()
		if err != nil {
			left++
			fmt.Fprintf(g.env.Stderr, "calicoctl: left out: %s: %v\n", r.Title(), err)
			continue
		}
		if len(older.Lost) > 0 {
			fmt.Fprintf(g.env.Stderr, "calicoctl: warning: %s: v1 has no word for %s\n", r.Title(), strings.Join(older.Lost, ", "))
		}
		documents = append(documents, older.Document)
	}
	print, all := output.YAML, any(documents)
	if g.format == "json" {
		print = output.JSON
	}
	if one && len(documents) == 1 {
		all = documents[0]
	}
	if err := print(g.env.Stdout, all); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%s left out", resource.Count(left, "resource"))
	}
	return nil
}

// exported removes what belongs to this cluster, with --export.
func (g *get) exported(r resource.Resource) resource.Resource {
	if g.export {
		r.Metadata.ResourceVersion = ""
	}
	return r
}

// resolve finds the resources with a name, several where each is on a node of its own, or, with a note, the one that the name may mean.
func (g *get) resolve(kind *resource.Kind, found []resource.Stored, namespace, name string) ([]resource.Stored, error) {
	s, err := kind.Lookup(found, namespace, name)
	if several, ok := errors.AsType[*resource.AmbiguousError](err); ok {
		return several.Found, nil
	}
	if missing, ok := errors.AsType[*resource.NotFoundError](err); ok && missing.Meant() != nil {
		s, err = missing.Meant(), nil
		fmt.Fprintf(g.env.Stderr, "calicoctl: note: there is no %s %s: this is %s\n", kind.Name, name, s.Metadata.Name)
	}
	if err != nil {
		return nil, err
	}
	return []resource.Stored{*s}, nil
}

// follow prints resources, and then changes, until it is interrupted. A named resource may appear later.
func (g *get) follow(ctx context.Context, c *client.Client, kind *resource.Kind, namespace string, names []string, print output.Printer) error {
	wanted := map[string]bool{}
	if len(names) > 0 {
		bound, cancel := g.env.Bound(ctx)
		found, _, err := c.List(bound, kind, namespace)
		cancel()
		if err != nil {
			return err
		}
		for _, name := range names {
			wanted[name] = true
			if these, err := g.resolve(kind, found, namespace, name); err == nil {
				wanted[these[0].Metadata.Name] = true
			}
		}
	}
	headed, picked := false, map[string]bool{}
	return c.Watch(ctx, kind, namespace, func(e client.Event) error {
		g.env.Progress("") // it only ends when interrupted
		s := e.Resource
		if len(names) > 0 && !wanted[s.Metadata.Name] {
			return nil
		}
		if s.Err != nil {
			fmt.Fprintf(g.env.Stderr, "calicoctl: %s is invalid: %v\n", s.Title(), s.Err)
			return nil
		}
		id := s.OnNode()
		was := picked[id]
		picked[id] = !e.Deleted && g.picks.Matches(labels.Set(s.Metadata.Labels))
		if !picked[id] {
			delete(picked, id)
			if !was {
				return nil // nothing was said of it
			}
			said, err := output.Deleted(g.env.Stdout, g.format, g.exported(s.Resource))
			if !said {
				fmt.Fprintf(g.env.Stderr, "calicoctl: %s deleted\n", s.Title())
			}
			return err
		}
		err := print(g.env.Stdout, kind, []resource.Resource{g.exported(s.Resource)}, true, !headed)
		headed = true
		return err
	})
}
