// SPDX-License-Identifier: Apache-2.0

// Package client reads, watches and writes the operator's resources in etcd. It is what calicoctl is built on, and what a
// program uses that wants to change a cluster: each write is one transaction, and is refused where the resource has changed
// since the revision that its resourceVersion names.
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

// A Client works on the resources of one cluster, safe for concurrent use.
type Client struct {
	store *store.Client
	// DryRun has writes decide, and say what they would do, without doing it. Each goes by what those before it would have done.
	DryRun bool
	would  []model.Change // by dry runs
	// Kept, nil = none, is told of each value that was written and has fields that this version knows nothing of, which stay.
	Kept func(path string, unknown error)
}

// New returns a client on an open store, which the caller closes.
func New(s *store.Client) *Client { return &Client{store: s} }

// An Outcome is what became of a write.
type Outcome string

// The outcomes of a write.
const (
	Created    Outcome = "created"
	Configured Outcome = "configured"
	Unchanged  Outcome = "unchanged"
	Deleted    Outcome = "deleted"
)

// List returns the resources of a kind in order of namespace and name, as of one revision; namespace "" = all. One that
// can't be read as a resource has Err.
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

// Get returns one resource; namespace "" = default. The error is *resource.NotFoundError where it isn't there.
func (c *Client) Get(ctx context.Context, kind *resource.Kind, namespace, name string) (resource.Stored, error) {
	snapshot, err := c.store.Read(ctx, kind.NameRanges(namespace, name)...)
	if err != nil {
		return resource.Stored{}, fmt.Errorf("read %s %s: %w", kind.Name, name, err)
	}
	s, err := kind.Lookup(kind.All(snapshot.Entries()), namespace, name)
	if _, missing := errors.AsType[*resource.NotFoundError](err); missing { // it may be elsewhere, or the error name what is like it
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

// Create makes a resource. The error is *resource.ExistsError where it is there already.
func (c *Client) Create(ctx context.Context, r resource.Resource) (Outcome, error) {
	return c.write(ctx, r, resource.Create)
}

// Update changes a resource to what r says. The error is *resource.NotFoundError where it isn't there, and
// *resource.StaleError where r.Metadata.ResourceVersion is set and no longer its.
func (c *Client) Update(ctx context.Context, r resource.Resource) (Outcome, error) {
	return c.write(ctx, r, resource.Replace)
}

// Apply makes the resource, or changes it to what r says. Nothing is written where etcd says it already.
func (c *Client) Apply(ctx context.Context, r resource.Resource) (Outcome, error) {
	return c.write(ctx, r, resource.Apply)
}

func (c *Client) write(ctx context.Context, r resource.Resource, mode resource.Mode) (Outcome, error) {
	kind, err := resource.Find(r.Kind)
	if err != nil {
		return "", err
	}
	return c.writeFrom(ctx, kind, kind.WriteRanges(r), mode, func([]model.Range, []model.Entry) (resource.Resource, error) { return r, nil })
}

// writeFrom writes the resource that from makes of what is stored.
func (c *Client) writeFrom(ctx context.Context, kind *resource.Kind, wants []model.Range, mode resource.Mode, from func([]model.Range, []model.Entry) (resource.Resource, error)) (outcome Outcome, err error) {
	err = c.transact(ctx, wants, func(ranges []model.Range, entries []model.Entry) (model.Change, error) {
		r, err := from(ranges, entries)
		if err != nil {
			return model.Change{}, err
		}
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

// Preview is what Apply would make of a resource, by a dry run: as it is stored, nil where it isn't there, and as it would be.
func (c *Client) Preview(ctx context.Context, r resource.Resource) (before, after *resource.Stored, err error) {
	kind, err := resource.Find(r.Kind)
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
			if before, err = kind.Lookup(kind.All(entries), name.Namespace, name.Name); err != nil {
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

// changed are entries as a change leaves them.
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

// Modify changes a resource to what modify makes of it; a BGPConfiguration, FelixConfiguration or IPAMConfiguration may be there
// or not. It may be called again, with what another writer has made of it meanwhile.
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

// Delete deletes a resource and all keys of it. resourceVersion "" = whatever its revision is.
//
// A pool is disabled first, so that no address is taken from it between the look at those in use and its end. A Delete that is
// killed between the two leaves it so.
func (c *Client) Delete(ctx context.Context, kind *resource.Kind, namespace, name, resourceVersion string) error {
	var was *resource.Stored
	retired := false
	remove := func(ranges []model.Range, entries []model.Entry) (change model.Change, err error) {
		if change, err = kind.Delete(entries, namespace, name, resourceVersion); err != nil || retired { // it says what is against it
			return change, err
		}
		if was, err = kind.Lookup(kind.All(entries), namespace, name); err != nil {
			return change, err
		}
		if r, retires := kind.Retired(was); retires {
			retire, _, err := kind.Write(ranges, entries, r, resource.Apply)
			return retire, err
		}
		was = nil
		return change, nil
	}
	if err := c.transact(ctx, kind.DeleteRanges(), remove); err != nil || was == nil {
		return err
	}
	retired, resourceVersion = true, ""
	err := c.transact(ctx, kind.DeleteRanges(), remove)
	if err != nil {
		was.Metadata.ResourceVersion = ""
		if _, again := c.write(ctx, was.Resource, resource.Replace); again != nil {
			err = fmt.Errorf("%w; it is left disabled: %w", err, again)
		}
	}
	return err
}

// transact decides on what it has read. A key may have been read twice, without its value and with it.
func (c *Client) transact(ctx context.Context, wants []model.Range, decide func([]model.Range, []model.Entry) (model.Change, error)) error {
	var kept []model.Entry
	var opts []store.TransactOption
	if c.DryRun {
		opts = append(opts, store.DryRun(&c.would))
	}
	_, err := c.store.Transact(ctx, wants, func(v *model.View) (model.Change, error) {
		var entries []model.Entry
		at := map[string]int{}
		for _, r := range v.Ranges() {
			of, _ := v.Read(r) // it is one of those that were read
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
		for _, before := range c.would {
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

// An Event is a change of one resource; Deleted ones have their last state.
type Event struct {
	Resource resource.Stored
	Deleted  bool
}

// Watch calls fn with each resource of the kind, then with each that changes, until the context ends (it returns nil) or fn
// returns an error (it returns that).
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
