// SPDX-License-Identifier: Apache-2.0

// Package client reads, watches and writes the operator's resources in etcd. calicoctl is built on it, and so are programs
// that change a cluster: each write is one transaction, which fails if the resource has changed since the revision in its
// resourceVersion.
package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/pkg/store"
)

// A Client works on the resources of one cluster. It is safe for concurrent use, but for dry runs and Preview.
type Client struct {
	store Store
	// DryRun makes writes report what they would do, without doing it. Each takes into account what those before it would have
	// done.
	DryRun bool
	would  []model.Change // changes of dry runs
	// By is who writes.
	By resource.By
	// Kept, nil = none, is called for each written value that has fields unknown to this version, which are preserved.
	Kept func(path string, unknown error)
}

// New returns a client on an open store, which the caller closes.
func New(s Store) *Client { return &Client{store: s} }

// A Store is etcd, as [store.Client] is.
type Store interface {
	Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error)
	Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...store.TransactOption) (revision int64, err error)
	Watch(ctx context.Context, prefixes []string, fn func(model.Update) error) error
}

// An Outcome is the result of a write.
type Outcome string

// The outcomes of a write.
const (
	Created    Outcome = "created"
	Configured Outcome = "configured"
	Unchanged  Outcome = "unchanged"
	Deleted    Outcome = "deleted"
)

// List returns the resources of a kind sorted by namespace and name, at one revision; namespace "" = all. A resource that
// can't be parsed has Err set.
func (c *Client) List(ctx context.Context, kind *resource.Kind, namespace string) (all []resource.Stored, revision int64, err error) {
	snapshot, err := c.store.Read(ctx, kind.Ranges()...)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", strings.ToLower(kind.Plural), err)
	}
	all = kind.All(snapshot.Entries())
	if namespace != "" && kind.Namespaced {
		all = slices.DeleteFunc(all, func(s resource.Stored) bool { return s.Metadata.Namespace != namespace })
	}
	return all, snapshot.Revision, nil
}

// Get returns one resource; namespace "" = default. The error is *resource.NotFoundError if it doesn't exist.
func (c *Client) Get(ctx context.Context, kind *resource.Kind, namespace, name string) (resource.Stored, error) {
	snapshot, err := c.store.Read(ctx, kind.NameRanges(namespace, name)...)
	if err != nil {
		return resource.Stored{}, fmt.Errorf("read %s %s: %w", kind.Name, name, err)
	}
	s, err := kind.Lookup(kind.All(snapshot.Entries()), namespace, name)
	if _, missing := errors.AsType[*resource.NotFoundError](err); missing { // it may be elsewhere, or the error should name similar ones
		var all []resource.Stored
		if all, _, err = c.List(ctx, kind, ""); err == nil {
			s, err = kind.Lookup(all, namespace, name)
		}
	}
	if err != nil {
		return resource.Stored{}, err
	}
	return *s, nil
}

// Create creates a resource. The error is *resource.ExistsError if it exists already.
func (c *Client) Create(ctx context.Context, r resource.Resource) (Outcome, error) {
	return c.write(ctx, r, resource.Create)
}

// Update changes a resource to r. The error is *resource.NotFoundError if it doesn't exist, and *resource.StaleError if
// r.Metadata.ResourceVersion is set and no longer current.
func (c *Client) Update(ctx context.Context, r resource.Resource) (Outcome, error) {
	return c.write(ctx, r, resource.Replace)
}

// Apply creates the resource, or changes it to r. It writes nothing if etcd holds it already.
func (c *Client) Apply(ctx context.Context, r resource.Resource) (Outcome, error) {
	return c.write(ctx, r, resource.Apply)
}

func (c *Client) write(ctx context.Context, r resource.Resource, mode resource.Mode) (Outcome, error) {
	r.By = c.By
	kind, err := resource.KindOf(r)
	if err != nil {
		return "", err
	}
	return c.writeFrom(ctx, kind, kind.WriteRanges(r), mode, func([]model.Range, []model.Entry) (resource.Resource, error) { return r, nil })
}

// writeFrom writes the resource that from derives from what is stored.
func (c *Client) writeFrom(ctx context.Context, kind *resource.Kind, wants []model.Range, mode resource.Mode, from func([]model.Range, []model.Entry) (resource.Resource, error)) (outcome Outcome, err error) {
	err = c.transact(ctx, wants, func(ranges []model.Range, entries []model.Entry) (model.Change, error) {
		r, err := from(ranges, entries)
		if err != nil {
			return model.Change{}, err
		}
		r.By = c.By
		change, created, err := kind.Write(ranges, entries, r, mode)
		switch outcome = Configured; {
		case created:
			outcome = Created
		case change.Empty():
			outcome = Unchanged
		}
		return change, err
	})
	return outcome, err
}

// Preview returns what Apply would do with a resource, by a dry run: the resource as stored, nil if it doesn't exist, and as
// it would be.
func (c *Client) Preview(ctx context.Context, r resource.Resource) (before, after *resource.Stored, err error) {
	r.By = c.By
	kind, err := resource.KindOf(r)
	if err != nil {
		return nil, nil, err
	}
	dry := *c
	dry.DryRun, dry.Kept = true, nil
	defer func() { c.would = dry.would }()
	err = dry.transact(ctx, kind.WriteRanges(r), func(ranges []model.Range, entries []model.Entry) (model.Change, error) {
		change, created, err := kind.Write(ranges, entries, r, resource.Apply)
		if err != nil {
			return change, err
		}
		name := r.Metadata
		if !created {
			if before, err = kind.Of(entries, r); err != nil {
				return change, err
			}
			name = before.Metadata
		}
		entries, err = changed(entries, change)
		if err == nil {
			after, err = kind.Lookup(kind.All(entries), name.Namespace, name.Name)
		}
		return change, err
	})
	return before, after, err
}

// changed returns entries with a change applied.
func changed(entries []model.Entry, change model.Change) ([]model.Entry, error) {
	at := map[string]model.Entry{}
	for _, e := range entries {
		at[e.Path] = e
	}
	for _, put := range change.Puts {
		text, err := model.FormatValue(put.Value)
		if err != nil {
			return nil, err
		}
		e := model.Entry{Path: put.Key.Path(), Key: put.Key, Revision: 1}
		e.Value, e.Err = model.ParseValue(put.Key, text)
		at[e.Path] = e
	}
	for _, key := range change.Deletes {
		delete(at, key.Path())
	}
	return slices.SortedFunc(maps.Values(at), func(a, b model.Entry) int { return strings.Compare(a.Path, b.Path) }), nil
}

// Modify changes a resource to the result of modify. The resource must exist, unless it is a BGPConfiguration,
// FelixConfiguration or IPAMConfiguration. modify may be called again, with the resource as another writer has left it
// meanwhile.
func (c *Client) Modify(ctx context.Context, kind *resource.Kind, namespace, name string, modify func(resource.Resource) (resource.Resource, error)) (Outcome, error) {
	named := resource.Resource{Metadata: resource.Metadata{Namespace: namespace, Name: name}}
	return c.writeFrom(ctx, kind, kind.WriteRanges(named), resource.Apply, func(ranges []model.Range, entries []model.Entry) (resource.Resource, error) {
		s, err := kind.ToChange(ranges, entries, namespace, name)
		if err == nil {
			err = s.Err
		}
		if err != nil {
			return resource.Resource{}, err
		}
		return modify(s.Resource)
	})
}

// Delete deletes a resource and all of its keys. resourceVersion "" = any revision.
//
// A pool is disabled first, so that no address is allocated from it between the check for those in use and the delete. A
// Delete that is killed in between leaves the pool disabled.
func (c *Client) Delete(ctx context.Context, kind *resource.Kind, namespace, name, resourceVersion string) error {
	of := resource.Resource{Metadata: resource.Metadata{Namespace: namespace, Name: name, ResourceVersion: resourceVersion}, By: c.By}
	var was *resource.Stored
	retired := false
	remove := func(ranges []model.Range, entries []model.Entry) (change model.Change, err error) {
		if change, err = kind.Delete(entries, of); err != nil || retired { // the error says what prevents it
			return change, err
		}
		if was, err = kind.Lookup(kind.All(entries), namespace, name); err != nil {
			return change, err
		}
		if r, retires := kind.Retired(was); retires {
			r.By = c.By
			retire, _, err := kind.Write(ranges, entries, r, resource.Apply)
			return retire, err
		}
		was = nil
		return change, nil
	}
	if err := c.transact(ctx, kind.DeleteRanges(), remove); err != nil || was == nil {
		return err
	}
	retired, of.Metadata.ResourceVersion = true, ""
	err := c.transact(ctx, kind.DeleteRanges(), remove)
	if err != nil {
		was.Metadata.ResourceVersion = ""
		if _, again := c.write(ctx, was.Resource, resource.Replace); again != nil {
			err = fmt.Errorf("%w; it is left disabled: %w", err, again)
		}
	}
	return err
}

// transact decides based on what it has read. A key may have been read twice, with and without its value.
func (c *Client) transact(ctx context.Context, wants []model.Range, decide func([]model.Range, []model.Entry) (model.Change, error)) error {
	var kept []model.Entry
	var opts []store.TransactOption
	var would []model.Change
	if c.DryRun {
		would, opts = c.would, append(opts, store.DryRun(&c.would))
	}
	_, err := c.store.Transact(ctx, wants, func(v *model.View) (model.Change, error) {
		var entries []model.Entry
		at := map[string]int{}
		for _, r := range v.Ranges() {
			of, _ := v.Read(r) // r is one of the ranges read
			for _, e := range of {
				i, twice := at[e.Path]
				switch {
				case !twice:
					at[e.Path] = len(entries)
					entries = append(entries, e)
				case !r.KeysOnly:
					entries[i] = e
				}
			}
		}
		for _, before := range would {
			var err error
			if entries, err = changed(entries, before); err != nil {
				return model.Change{}, err
			}
		}
		change, err := decide(v.Ranges(), entries)
		for i := range change.NoneSince {
			change.NoneSince[i].Revision = v.Revision()
		}
		kept = slices.DeleteFunc(entries, func(e model.Entry) bool {
			return e.Unknown == nil || !slices.ContainsFunc(change.Puts, func(p model.Put) bool { return p.Key == e.Key })
		})
		return change, err
	}, opts...)
	if err == nil && c.Kept != nil {
		for _, e := range kept {
			c.Kept(e.Path, e.Unknown)
		}
	}
	return err
}

// An Event is a change of one resource; if Deleted, Resource is its last state.
type Event struct {
	Resource resource.Stored
	Deleted  bool
}

// Watch calls fn for each resource of the kind, and then for each change. It returns nil when the context ends, or the first
// error of fn.
func (c *Client) Watch(ctx context.Context, kind *resource.Kind, namespace string, fn func(Event) error) error {
	tracker := kind.Track()
	var prefixes []string
	for _, r := range kind.Ranges() {
		prefixes = append(prefixes, r.Path())
	}
	return c.store.Watch(ctx, prefixes, func(u model.Update) error {
		gone, changed := tracker.Update(u)
		for i, s := range slices.Concat(gone, changed) {
			if namespace != "" && kind.Namespaced && s.Metadata.Namespace != namespace {
				continue
			}
			if err := fn(Event{Resource: s, Deleted: i < len(gone)}); err != nil {
				return err
			}
		}
		return nil
	})
}
