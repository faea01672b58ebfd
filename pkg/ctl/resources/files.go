// SPDX-License-Identifier: Apache-2.0

// Package resources implements the commands of calicoctl on resources: create, apply, replace, patch, label, delete, get,
// validate.
package resources

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/resource"
)

// files are the files named by -f.
type files struct {
	names     []string
	recursive bool
}

func (f *files) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.names, "filename", "f", nil, "file or directory of resources, - = standard input; may be given again")
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "R", false, "with the directories below")
}

// read reads all resources in a command's files. The error names everything that is wrong, including duplicates.
func (f *files) read(cmd *cobra.Command, env *session.Env) ([]resource.Resource, error) {
	if len(f.names) == 0 {
		return nil, session.Usagef("want -f FILE: see %s --help", cmd.CommandPath())
	}
	var all []resource.Resource
	var errs []error
	var names []string
	add := func(name string, data []byte, err error) {
		names = append(names, name)
		if err == nil {
			var more []resource.Resource
			more, err = resource.Decode(name, data)
			all = append(all, more...)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range f.names {
		if name == "-" {
			env.Progress("reading standard input")
			data, err := io.ReadAll(env.Stdin)
			add("standard input", data, err)
			continue
		}
		list, err := f.below(name)
		if err != nil {
			errs = append(errs, err)
		}
		for _, file := range list {
			data, err := os.ReadFile(file)
			add(file, data, err)
		}
	}
	seen := map[string]resource.Resource{}
	for _, r := range all {
		if first, twice := seen[r.OnNode()]; twice {
			errs = append(errs, fmt.Errorf("%s: %s is at %s already: leave one out", r.Place(), r.Title(), first.Place()))
		} else {
			seen[r.OnNode()] = r
		}
	}
	switch {
	case len(errs) > 0:
		return nil, session.Usagef("%w", errors.Join(errs...))
	case len(names) == 0:
		return nil, session.Usagef("no file in %s ends in .yaml, .yml or .json", strings.Join(f.names, ", "))
	case len(all) == 0:
		fmt.Fprintf(env.Stderr, "calicoctl: note: no document in %s: nothing to do\n", strings.Join(names, ", "))
	}
	return all, nil
}

// below returns the file itself, or the files of a directory.
func (f *files) below(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var list []string
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != name && !f.recursive:
			return fs.SkipDir
		case !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			list = append(list, path)
		}
		return nil
	})
	return list, err
}

// warn reports the parts of a document that are not stored.
func warn(env *session.Env, r resource.Resource) {
	kind, err := resource.Find(r.Kind)
	if err == nil && len(r.Metadata.Labels) > 0 && kind.Plain && !kind.Labelled {
		fmt.Fprintf(env.Stderr, "calicoctl: warning: %s: metadata.labels are not kept\n", r.Title())
	}
	if err == nil && len(r.Metadata.Annotations) > 0 && kind.Plain {
		fmt.Fprintf(env.Stderr, "calicoctl: warning: %s: metadata.annotations are not kept\n", r.Title())
	}
}

// writeFlags adds the flags of every command that writes.
func writeFlags(cmd *cobra.Command, env *session.Env) {
	cmd.Flags().BoolVar(&env.DryRun, "dry-run", false, "say what would be done, and do nothing")
	cmd.Flags().BoolVar(&env.TakeOver, "take-over", false, "write also what an object of the Kubernetes API makes, which then has no effect on it")
}

func newClient(cmd *cobra.Command, env *session.Env) (*client.Client, error) {
	s, err := env.Store(cmd.Context())
	if err != nil {
		return nil, err
	}
	c := client.New(s)
	c.DryRun, c.By.TakeOver = env.DryRun, env.TakeOver
	c.Kept = func(path string, unknown error) { fmt.Fprintf(env.Stderr, "calicoctl: %s: kept: %v\n", path, unknown) }
	return c, nil
}
