// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/resource"
)

// A place is where a command looks for the resources that it names.
type place struct{ namespace, node string }

func (p *place) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.namespace, "namespace", "n", "", "namespace of what is named (default default)")
	cmd.Flags().StringVar(&p.node, "node", "", "node of the host endpoint, where several have one of this name")
}

// kind returns the kind with this name, as it is at the place.
func (p *place) kind(name string) (kind *resource.Kind, err error) {
	if kind, err = resource.Find(name); err == nil && p.node != "" {
		kind, err = kind.On(p.node)
	}
	if err != nil {
		return nil, session.Usagef("%w", err)
	}
	return kind, nil
}

// modify changes one resource to the result of change.
func (p *place) modify(cmd *cobra.Command, env *session.Env, kindName, name string, change func(*resource.Kind, resource.Resource) (resource.Resource, error)) error {
	kind, err := p.kind(kindName)
	if err != nil {
		return err
	}
	c, err := newClient(cmd, env)
	if err != nil {
		return err
	}
	ctx, cancel := env.Bound(cmd.Context())
	defer cancel()
	outcome, err := c.Modify(ctx, kind, p.namespace, name, func(r resource.Resource) (resource.Resource, error) { return change(kind, r) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "%s %s %s\n", kind.Name, name, outcome)
	return err
}

// NewPatch returns the command patch.
func NewPatch(env *session.Env) *cobra.Command {
	var at place
	var patch, patchFile, typ string
	patches := map[string]func(resource.Resource, []byte) (resource.Resource, error){"merge": resource.Patched, "strategic": resource.Patched, "json": resource.Operated}
	cmd := &cobra.Command{
		Use: "patch KIND NAME -p PATCH", Short: "Change fields of a resource", Args: cobra.ExactArgs(2),
		ValidArgsFunction: completer(env, &at.namespace),
		Example: `  calicoctl patch ippool pods -p '{"spec":{"vxlanMode":"CrossSubnet"}}'
  calicoctl patch ippool pods --type json -p '[{"op":"test","path":"/spec/disabled","value":true},{"op":"remove","path":"/spec/disabled"}]'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			text, apply := []byte(patch), patches[typ]
			switch {
			case (patch == "") == (patchFile == ""):
				return session.Usagef("want either -p PATCH or --patch-file FILE")
			case apply == nil:
				return session.Usagef("--type %s: want merge (RFC 7386), which merges what PATCH has with what is stored, or json (RFC 6902), a list of operations", typ)
			case patchFile != "":
				var err error
				if text, err = os.ReadFile(patchFile); err != nil {
					return session.Usagef("%w", err)
				}
			}
			return at.modify(cmd, env, args[0], args[1], func(_ *resource.Kind, r resource.Resource) (resource.Resource, error) {
				patched, err := apply(r, text)
				if err != nil {
					err = session.Usagef("%w", err)
				}
				return patched, err
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&patch, "patch", "p", "", "the patch, as JSON or YAML")
	f.StringVar(&patchFile, "patch-file", "", "file with the patch")
	f.StringVarP(&typ, "type", "t", "merge", "of the patch: merge (RFC 7386), or json (RFC 6902), a list of operations; strategic is merge, as no list of these kinds is merged")
	at.addFlags(cmd)
	writeFlags(cmd, env)
	return cmd
}

// NewLabel returns the command label.
func NewLabel(env *session.Env) *cobra.Command {
	var at place
	var overwrite, remove bool
	cmd := &cobra.Command{
		Use: "label KIND NAME (LABEL=VALUE... | LABEL... --remove)", Short: "Set or remove labels of a resource", Args: cobra.MinimumNArgs(3),
		ValidArgsFunction: completer(env, &at.namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.modify(cmd, env, args[0], args[1], func(kind *resource.Kind, r resource.Resource) (resource.Resource, error) {
				if kind.Plain && !kind.Labelled {
					return r, session.Usagef("labels of %s are not kept", resource.A(kind.Name))
				}
				labels := maps.Clone(r.Metadata.Labels)
				if labels == nil {
					labels = map[string]string{}
				}
				for _, arg := range args[2:] {
					label, value, hasValue := strings.Cut(arg, "=")
					had, has := labels[label]
					switch {
					case label == "" || hasValue == remove:
						return r, session.Usagef("%q: want LABEL=VALUE, or LABEL with --remove", arg)
					case remove && !has:
						return r, &resource.NotFoundError{Kind: "label", Name: label + " of " + r.Title()}
					case remove:
						delete(labels, label)
					case has && had != value && !overwrite:
						return r, fmt.Errorf("%s: label %s is %s: use --overwrite to change it", r.Title(), label, had)
					default:
						labels[label] = value
					}
				}
				r.Metadata.Labels = labels
				return r, nil
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&overwrite, "overwrite", false, "change labels that are there")
	f.BoolVar(&remove, "remove", false, "remove labels")
	at.addFlags(cmd)
	writeFlags(cmd, env)
	return cmd
}
